"""A JAX function seen through its declarations: by name inside, by position outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import jax

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.manifest import Manifest, TensorSpec, concrete_shape
from reactant_core.bundle.programs import ProgramKey, program_keys
from reactant_export.declarations import Arrays, ModelFunction
from reactant_export.samples import Array


@final
@dataclass(frozen=True, slots=True)
class TracedModel:
    """A function with its declarations and weights, by position as programs take them."""

    fn: ModelFunction
    manifest: Manifest
    weights: Mapping[str, Array]
    matmul_precision: str

    def check(self) -> None:
        """Traces every program for its shapes alone; BundleError with what does not fit."""
        faults: dict[str, None] = {}
        for key in program_keys(self.manifest):
            given = jax.eval_shape(self._named, *self.arguments(key))
            for fault in _output_faults(given, self.manifest.executable_outputs, key):
                faults[fault] = None
        if faults:
            raise BundleError(faults)

    def flat(self, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        """The function as a program is called: inputs, then weights; outputs in manifest order."""
        outputs = self._named(*arrays)
        return tuple(outputs[spec.name] for spec in self.manifest.executable_outputs)

    def by_name(self, inputs: Arrays, weights: Arrays) -> dict[str, jax.Array]:
        """The function itself, with its matmul precision."""
        with jax.default_matmul_precision(self.matmul_precision):
            outputs = self.fn(inputs, weights)
        if not isinstance(outputs, Mapping):
            raise BundleError(f"fn must give a dict of outputs by name, not {type(outputs).__name__}")
        return {name: jax.numpy.asarray(value) for name, value in outputs.items()}

    def _named(self, *arrays: jax.Array) -> dict[str, jax.Array]:
        names = [spec.name for spec in self.manifest.executable_inputs]
        inputs = dict(zip(names, arrays[: len(names)], strict=True))
        weights = dict(zip(self.weights, arrays[len(names) :], strict=True))
        return self.by_name(inputs, weights)

    def arguments(self, key: ProgramKey) -> list[jax.ShapeDtypeStruct]:
        """Shapes and dtypes of a program's arguments."""
        variant = {} if key.variant is None else self.manifest.input_shapes[key.variant]
        shapes = [
            (concrete_shape(spec, key.batch, variant), spec.dtype.numpy)
            for spec in self.manifest.executable_inputs
        ]
        shapes += [(array.shape, array.dtype) for array in self.weights.values()]
        return [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]  # type: ignore[no-untyped-call]


def _output_faults(
    given: Mapping[str, jax.ShapeDtypeStruct], declared: Sequence[TensorSpec], key: ProgramKey
) -> list[str]:
    names = [spec.name for spec in declared]
    faults = [f"fn gives no output {name!r}, which outputs declares" for name in names if name not in given]
    faults += [
        f"fn gives output {name!r}, which outputs does not declare" for name in given if name not in names
    ]
    for spec in declared:
        if spec.name not in given:
            continue
        tensor = given[spec.name]
        # Variable axes of an output may have any size: they follow from the variant.
        wanted = concrete_shape(spec, key.batch)
        fits = len(wanted) == len(tensor.shape) and all(
            size in (-1, actual) for size, actual in zip(wanted, tensor.shape, strict=True)
        )
        if tensor.dtype != spec.dtype.numpy:
            faults.append(
                f"fn gives output {spec.name!r} as {tensor.dtype}; declared is {spec.dtype.token}: cast it "
                "in fn, or declare what it gives"
            )
        if not fits:
            faults.append(
                f"fn gives output {spec.name!r} with shape {list(tensor.shape)} at batch size {key.batch}, "
                f"declared is {list(wanted)}"
            )
    return faults
