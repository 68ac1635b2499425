"""Whether a program takes and gives what its bundle says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from reactant_core.bundle.dtypes import weight_by_numpy
from reactant_core.bundle.errors import shown
from reactant_core.bundle.manifest import TensorSpec, concrete_shape
from reactant_core.bundle.repository import Bundle, ProgramKey

__all__ = [
    "Signature",
    "TensorType",
    "align_weights",
    "check_signature",
    "concrete_shape",
    "expected_signature",
]

_JULIA_WRITERS: Final = ("ReactantServerExport.jl", "PyTorchExport.jl")


@final
@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of one argument or result.

    Attributes:
        dtype: the element type as MLIR prints it, such as `f32`, `i8`, `ui8`, `i1`, `bf16`.
        shape: sizes, row-major; -1 stands for any size.
    """

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join('any' if size < 0 else str(size) for size in self.shape)}]"


@final
@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a program's arguments (inputs, then weights) and results."""

    arguments: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


def expected_signature(bundle: Bundle, key: ProgramKey) -> Signature:
    """What `bundle` says the program `key` takes and gives.

    Inputs are in manifest order, weights in argument order. Variable axes of inputs have the
    variant's sizes; those of outputs are -1, any size.
    """
    manifest = bundle.manifest
    variant: Mapping[str, int] = {} if key.variant is None else manifest.input_shapes[key.variant]
    inputs = tuple(
        TensorType(spec.dtype.mlir, concrete_shape(spec, key.batch, variant))
        for spec in manifest.executable_inputs
    )
    results = tuple(
        TensorType(spec.dtype.mlir, concrete_shape(spec, key.batch)) for spec in manifest.executable_outputs
    )
    return Signature((*inputs, *_weight_types(bundle)), results)


def align_weights(bundle: Bundle, signature: Signature) -> Bundle:
    """`bundle` with its weights' axes in the order its programs take them.

    Version 3 stores weights as programs take them and comes back unchanged. A version 2 bundle
    written by the Julia server's exporter stores every weight with its axes in reverse. Its file does not
    say so, but nearly always a weight's shape does: it fits `signature` one way only. Where all
    shapes read the same both ways, the exporter's mark in the provenance decides.
    """
    if bundle.manifest.format_version != "2" or bundle.weights is None:
        return bundle
    taken = [argument.shape for argument in signature.arguments[len(bundle.manifest.executable_inputs) :]]
    stored = [bundle.weights.tensors[name].shape for name in bundle.weights.argument_order]
    fits = sum(a == b for a, b in zip(taken, stored, strict=False))
    fits_reversed = sum(a == b[::-1] for a, b in zip(taken, stored, strict=False))
    by_julia = bundle.manifest.provenance.get("converter") in _JULIA_WRITERS
    if fits_reversed < fits or (fits_reversed == fits and not by_julia):
        return bundle
    return replace(bundle, weights=bundle.weights.with_axes_reversed())


def check_signature(bundle: Bundle, key: ProgramKey, signature: Signature) -> list[str]:
    """Every difference between a program's signature and what its bundle says, as a sentence."""
    expected = expected_signature(bundle, key)
    manifest = bundle.manifest
    program = bundle.programs[key].name if key in bundle.programs else "program"
    weights = bundle.weights.argument_order if bundle.weights is not None else ()
    differences: list[str] = []
    if len(signature.arguments) != len(expected.arguments):
        differences.append(
            f"{program}: takes {len(signature.arguments)} arguments, not {len(expected.arguments)} "
            f"(inputs: {len(manifest.executable_inputs)}, weights: {len(weights)}"
            f"{'' if bundle.weights is not None else ', there is no weights.safetensors'})"
        )
    if len(signature.results) != len(expected.results):
        differences.append(
            f"{program}: gives {len(signature.results)} results, not {len(expected.results)} "
            "(executable_outputs)"
        )
    arguments = [*_titles("input", manifest.executable_inputs), *(f"weight {shown(n)}" for n in weights)]
    results = _titles("output", manifest.executable_outputs)
    differences += _differences(program, "argument", arguments, signature.arguments, expected.arguments)
    differences += _differences(program, "result", results, signature.results, expected.results)
    return differences


def _weight_types(bundle: Bundle) -> tuple[TensorType, ...]:
    if bundle.weights is None:
        return ()
    types = []
    for name in bundle.weights.argument_order:
        tensor = bundle.weights.tensors[name]
        dtype = weight_by_numpy(tensor.dtype)
        assert dtype is not None
        types.append(TensorType(dtype.mlir, tensor.shape))
    return tuple(types)


def _titles(what: str, specs: Sequence[TensorSpec]) -> list[str]:
    return [f"{what} {shown(spec.name)}" for spec in specs]


def _differences(
    program: str,
    kind: str,
    titles: Sequence[str],
    actual: Sequence[TensorType],
    expected: Sequence[TensorType],
) -> list[str]:
    return [
        f"{program}: {kind} {index} ({title}) is {have}, the bundle says {want}"
        for index, (title, have, want) in enumerate(zip(titles, actual, expected, strict=False))
        if not _fits(have, want)
    ]


def _fits(have: TensorType, want: TensorType) -> bool:
    return (
        have.dtype == want.dtype
        and len(have.shape) == len(want.shape)
        and all(wanted in (size, -1) for size, wanted in zip(have.shape, want.shape, strict=True))
    )
