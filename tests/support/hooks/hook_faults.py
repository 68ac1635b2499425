"""Does what the request's `fault` parameter says, in the stage that `stage` says; identity otherwise."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, Any]
SECRET = "a local variable of the hook"


def preprocess(inputs: Tensors, request: Any) -> Any:
    return _apply("preprocess", "X", inputs, request)


def postprocess(outputs: Tensors, request: Any) -> Any:
    return _apply("postprocess", "Y", outputs, request)


def _apply(stage: str, name: str, tensors: Tensors, request: Any) -> Any:
    fault = request.parameters.get("fault")
    if fault is None or request.parameters.get("stage", "postprocess") != stage:
        return {name: tensors[name]}
    if fault == "invalid":
        request.invalid(request.parameters.get("message", "this row is not acceptable"))
    return _FAULTS[fault](name, tensors[name])


def _raise(error: BaseException) -> Callable[[str, NDArray[Any]], Any]:
    def fail(name: str, array: NDArray[Any]) -> Any:
        marker = SECRET  # in the traceback's frame, and never in an answer
        assert marker
        raise error

    return fail


def _recurse(name: str, array: NDArray[Any]) -> Any:
    return _recurse(name, array)


def _read_only(name: str, array: NDArray[Any]) -> Any:
    frozen = np.array(array)
    frozen.flags.writeable = False
    return {name: frozen}


def _strided(name: str, array: NDArray[Any]) -> Any:
    wide = np.full((array.shape[0], array.shape[1] * 2), -1, np.float32)
    wide[:, ::2] = array
    return {name: wide[:, ::2]}


_FAULTS: dict[str, Callable[[str, NDArray[Any]], Any]] = {
    "raise": _raise(ValueError("the vocabulary has no such word")),
    "raise_long": _raise(ValueError("é" * 5000)),
    "exit": _raise(SystemExit(3)),
    "sys_exit": lambda name, array: sys.exit("bye"),
    "keyboard_interrupt": _raise(KeyboardInterrupt()),
    "cancelled": _raise(asyncio.CancelledError()),
    "stop_iteration": _raise(StopIteration()),
    "generator_exit": _raise(GeneratorExit()),
    "timeout": _raise(TimeoutError("a look-up took too long")),
    "recursion": _recurse,
    "none": lambda name, array: None,
    "not_a_mapping": lambda name, array: [array],
    "not_a_name": lambda name, array: {7: array},
    "wrong_name": lambda name, array: {"Z": array},
    "missing": lambda name, array: {},
    "extra": lambda name, array: {name: array, "Z": array},
    "wrong_dtype": lambda name, array: {name: array.astype(np.float64)},
    "wrong_rank": lambda name, array: {name: array[..., None]},
    "wrong_axis": lambda name, array: {name: np.concatenate([array, array], axis=1)},
    "ragged": lambda name, array: {name: [[1.0], [1.0, 2.0]]},
    "object": lambda name, array: {name: array.astype(object)},
    "text": lambda name, array: {name: np.full(array.shape, "1.5")},
    "transposed": lambda name, array: {name: np.array(array.T, order="C").T},
    "strided": _strided,
    "reversed": lambda name, array: {name: np.array(array[:, ::-1])[:, ::-1]},
    "broadcast": lambda name, array: {name: np.broadcast_to(array[:1], array.shape)},
    "big_endian": lambda name, array: {name: array.astype(">f4")},
    "read_only": _read_only,
    "fortran": lambda name, array: {name: np.asfortranarray(array)},
}
