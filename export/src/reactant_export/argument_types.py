"""Tells an exporter which of his arguments are of the wrong type, before they fail somewhere inside."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, final

import numpy as np

from reactant_export.declarations import ExportSpec, TensorDecl

_PATH = "a path (str or Path)"


@final
class ArgumentTypeError(TypeError):
    """Arguments of an export that have the wrong type; `faults` holds one sentence for each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


def check_types(spec: ExportSpec, path: object) -> None:
    """Raises ArgumentTypeError with every argument of a wrong type; values are checked elsewhere."""
    if faults := list(_faults(spec, path)):
        raise ArgumentTypeError(faults)


def _faults(spec: Any, path: object) -> Iterator[str]:
    if not callable(spec.fn):
        yield _fault("fn", "a function of inputs and weights", spec.fn)
    yield from _weight_faults(spec.weights)
    yield from _list_faults("inputs", spec.inputs, TensorDecl, "TensorDecl")
    yield from _list_faults("outputs", spec.outputs, TensorDecl, "TensorDecl")
    if spec.client_inputs is not None:
        yield from _list_faults("client_inputs", spec.client_inputs, TensorDecl, "TensorDecl")
    if spec.client_outputs is not None:
        yield from _list_faults("client_outputs", spec.client_outputs, TensorDecl, "TensorDecl")
    if spec.batch_sizes is not None:
        yield from _list_faults("batch_sizes", spec.batch_sizes, Integral, "whole numbers")
    yield from _list_faults("input_shapes", spec.input_shapes, Mapping, "dicts of axis letter to size")
    yield from _list_faults("platforms", spec.platforms, str, "names")
    yield from _list_faults("assets", spec.assets, (str, os.PathLike), "paths (str or Path)")
    if spec.hooks is not None and not isinstance(spec.hooks, (str, os.PathLike)):
        yield _fault("hooks", _PATH, spec.hooks)
    if spec.provenance is not None and not isinstance(spec.provenance, Mapping):
        yield _fault("provenance", "a dict", spec.provenance)
    if not isinstance(path, (str, os.PathLike)):
        yield _fault("path", _PATH, path)


def _weight_faults(weights: Any) -> Iterator[str]:
    if not isinstance(weights, Mapping):
        yield _fault("weights", "a dict of name to array", weights)
        return
    for name, value in weights.items():
        if not isinstance(name, str):
            yield _fault(f"weights: the name {name!r}", "a str", name)
        if isinstance(value, Mapping):
            yield _fault(f"weights: {name!r}", "an array (the dict is flat)", value)
            continue
        try:
            np.asarray(value)
        except (TypeError, ValueError) as error:
            yield f"weights: {name!r} is no array: {error}"


def _list_faults(name: str, value: object, kind: type | tuple[type, ...], of: str) -> Iterator[str]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        yield _fault(name, f"a list of {of}", value)
        return
    for index, item in enumerate(value):
        if not isinstance(item, kind):
            yield f"{name}: must be a list of {of}, but item {index} is {type(item).__name__}"


def _fault(name: str, wanted: str, value: object) -> str:
    return f"{name}: must be {wanted}, not {type(value).__name__}"
