"""A meta that does what the request's `fault` parameter says; without one it doubles what `echo` gives."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Inputs = dict[str, Any]


def run(inputs: Inputs, call: Any, request: Any) -> Any:
    return _FAULTS[request.parameters.get("fault", "none")](inputs, call, request)


def _double(inputs: Inputs, call: Any, request: Any) -> Any:
    buffer = call.scratch(inputs["X"].shape, "float32")
    np.multiply(call("echo", inputs)["Y"], 2, out=buffer)
    return {"Y": buffer}


def _undeclared(inputs: Inputs, call: Any, request: Any) -> Any:
    return {"Y": call("add2", {"A": inputs["X"], "B": inputs["X"]})["SUM"]}


def _gives(model: str, **given: Callable[[NDArray[Any]], Any]) -> Callable[[Inputs, Any, Any], Any]:
    """Calls `model` with inputs made of X."""

    def misuse(inputs: Inputs, call: Any, request: Any) -> Any:
        call(model, {name: make(inputs["X"]) for name, make in given.items()})
        return {"Y": inputs["X"]}

    return misuse


def _not_a_dict(inputs: Inputs, call: Any, request: Any) -> Any:
    return call("echo", [inputs["X"]])


def _catches(inputs: Inputs, call: Any, request: Any) -> Any:
    """A text that is too long for `echo_bytes`, which refuses it; then one that is not."""
    try:
        call("echo_bytes", {"text": np.array([b"x" * 65], object)})
    except call.Refused as refusal:
        if "65 bytes" not in str(refusal):
            raise
        call("echo_bytes", {"text": np.array([b"x" * 64], object)})
        return {"Y": inputs["X"]}
    raise AssertionError("it was taken")


def _refused(inputs: Inputs, call: Any, request: Any) -> Any:
    return call("echo_bytes", {"text": np.array([b"x" * 65], object)})


def _row_by_row(inputs: Inputs, call: Any, request: Any) -> Any:
    """As many stages as there are rows, in a buffer of its own."""
    buffer = call.scratch(inputs["X"].shape)
    buffer[...] = np.nan
    for index in range(len(inputs["X"])):
        buffer[index : index + 1] = call("echo", {"X": inputs["X"][index : index + 1]})["Y"]
    return {"Y": buffer}


def _no_rows(inputs: Inputs, call: Any, request: Any) -> Any:
    found = call("echo", {"X": inputs["X"][:0]})["Y"]
    assert found.shape == (0, 4), found.shape
    return {"Y": found}


def _raise(error: BaseException) -> Callable[[Inputs, Any, Any], Any]:
    def fail(inputs: Inputs, call: Any, request: Any) -> Any:
        call("echo", inputs)
        raise error

    return fail


def _fork(inputs: Inputs, call: Any, request: Any) -> Any:
    """The child leaves as if it were the server."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return {"Y": inputs["X"]}


def _program(inputs: Inputs, call: Any, request: Any) -> Any:
    subprocess.run([sys.executable, "-c", ""], check=True)
    return {"Y": inputs["X"]}


_FAULTS: dict[str, Callable[[Inputs, Any, Any], Any]] = {
    "none": _double,
    "undeclared": _undeclared,
    "wrong_name": _gives("echo", Z=lambda x: x),
    "missing": _gives("echo"),
    "extra": _gives("echo", X=lambda x: x, Z=lambda x: x),
    "not_a_dict": _not_a_dict,
    "wrong_dtype": _gives("echo", X=lambda x: x.astype(np.float64)),
    "wrong_rank": _gives("echo", X=lambda x: x[0]),
    "wrong_axis": _gives("echo", X=lambda x: np.concatenate([x, x], axis=1)),
    "ragged": _gives("echo", X=lambda x: [[1.0], [1.0, 2.0]]),
    "too_many_rows": _gives("echo", X=lambda x: np.zeros((5, 4), np.float32)),
    "no_variant": _gives("variants", image=lambda x: np.zeros((1, 3, 2), np.float32)),
    "text_as_str": _gives("echo_bytes", text=lambda x: np.array(["é"], object)),
    "text_as_ints": _gives("echo_bytes", text=lambda x: np.array([7], object)),
    "text_as_s": _gives("echo_bytes", text=lambda x: np.array([b"text"])),
    "catches": _catches,
    "refused": _refused,
    "row_by_row": _row_by_row,
    "no_rows": _no_rows,
    "raise": _raise(ValueError("no such word")),
    "exit": _raise(SystemExit(3)),
    "interrupt": _raise(KeyboardInterrupt()),
    "cancelled": _raise(asyncio.CancelledError()),
    "stop_iteration": _raise(StopIteration()),
    "invalid": lambda inputs, call, request: request.invalid("this row is not acceptable"),
    "returns_none": lambda inputs, call, request: None,
    "returns_wrong_name": lambda inputs, call, request: {"Z": inputs["X"]},
    "returns_wrong_dtype": lambda inputs, call, request: {"Y": inputs["X"].astype(np.float64)},
    "returns_wrong_axis": lambda inputs, call, request: {"Y": inputs["X"][:, :3]},
    "scratch_of_objects": lambda inputs, call, request: {"Y": call.scratch((1, 4), object)},
    "scratch_negative": lambda inputs, call, request: {"Y": call.scratch((-1, 4))},
    "forks": _fork,
    "runs_a_program": _program,
}
