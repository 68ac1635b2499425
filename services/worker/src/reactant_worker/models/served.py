"""One loaded model version, as the RPC side sees it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.bundle.repository import Bundle
from reactant_core.errors import InvalidArgument
from reactant_worker.models.hooks import Hooks

_serial = itertools.count(1)


@final
@dataclass(frozen=True, slots=True)
class ServedModel:
    """Everything a request needs to know of a ready model; immutable once built.

    Attributes:
        key: what the engine knows this version by.
        client_inputs, client_outputs: tensors on the wire, by name in declared order.
        executable_inputs, executable_outputs: tensors of the program, in manifest order.
        sizes: compiled batch sizes, ascending; (1,) without a batch axis.
        variants: shapes of the executable inputs per input-shape variant, each in manifest order;
            empty when every axis but the batch axis is fixed.
        output_shapes: shapes of the executable outputs at the smallest size, per variant (one entry,
            for variant None, without variants).
        weight_bytes: bytes of the weight set; 0 for a meta, which has none of its own.
        meta: it is a meta: no program, and `run` of its `model.py` answers its requests.
        calls: the models a meta may call; empty for a compute-only meta and for a model.
    """

    bundle: Bundle
    hooks: Hooks | None
    client_inputs: Mapping[str, TensorSpec]
    client_outputs: Mapping[str, TensorSpec]
    executable_inputs: tuple[TensorSpec, ...]
    executable_outputs: tuple[TensorSpec, ...]
    sizes: tuple[int, ...]
    variants: tuple[tuple[tuple[int, ...], ...], ...]
    output_shapes: Mapping[int | None, tuple[tuple[int, ...], ...]]
    weight_bytes: int
    meta: bool = False
    calls: tuple[str, ...] = ()
    key: str = field(default_factory=lambda: str(next(_serial)))
    name: str = field(init=False)
    pads: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.bundle.name)
        object.__setattr__(self, "pads", all(spec.batch_axis is not None for spec in self.executable_outputs))

    def moved(self, path: Path) -> ServedModel:
        """The same version, its bundle now at `path`, with a key of its own."""
        return replace(
            self,
            bundle=self.bundle.moved(path),
            hooks=None if self.hooks is None else self.hooks.renamed(path.name),
            key=str(next(_serial)),
        )

    @property
    def largest(self) -> int:
        """Largest compiled batch size."""
        return self.sizes[-1]

    def variant_of(self, inputs: tuple[NDArray[Any], ...]) -> int | None:
        """The variant whose shapes equal those of `inputs`, batch axis aside.

        Raises InvalidArgument naming the shapes that are compiled.
        """
        if not self.variants:
            return None
        for index, shapes in enumerate(self.variants):
            if all(
                _same_shape(array.shape, shape, spec.batch_axis)
                for array, shape, spec in zip(inputs, shapes, self.executable_inputs, strict=True)
            ):
                return index
        given = ", ".join(
            f"'{spec.name}' {list(array.shape)}"
            for spec, array in zip(self.executable_inputs, inputs, strict=True)
        )
        compiled = "; ".join(
            ", ".join(
                f"'{spec.name}' {list(shape)}"
                for spec, shape in zip(self.executable_inputs, shapes, strict=True)
            )
            for shapes in self.variants
        )
        raise InvalidArgument(
            f"model '{self.name}': no compiled input shape fits {given}; compiled are {compiled}"
        )


def _same_shape(shape: tuple[int, ...], compiled: tuple[int, ...], batch_axis: int | None) -> bool:
    return len(shape) == len(compiled) and all(
        axis == batch_axis or have == want
        for axis, (have, want) in enumerate(zip(shape, compiled, strict=True))
    )
