"""Does in `preprocess` what the request's `fault` parameter says: what no hook should, and hooks do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Tensors = dict[str, Any]


def preprocess(inputs: Tensors, request: Any) -> Any:
    return _FAULTS[request.parameters["fault"]](inputs, request)


def _raises(inputs: Tensors, request: Any) -> Any:
    raise LookupError("no such word")


def _sleeps(inputs: Tensors, request: Any) -> Any:
    time.sleep(float(request.parameters["seconds"]))
    return inputs


def _forks(inputs: Tensors, request: Any) -> Any:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return inputs


def _forks_and_returns(inputs: Tensors, request: Any) -> Any:
    """The child leaves the hook as if it were the server."""
    os.fork()
    return inputs


def _forks_and_raises(inputs: Tensors, request: Any) -> Any:
    if os.fork() == 0:
        sys.exit(0)
    return inputs


def _runs_a_program(inputs: Tensors, request: Any) -> Any:
    subprocess.run(["/bin/true"], check=True)
    return inputs


def _exits(inputs: Tensors, request: Any) -> Any:
    sys.exit(3)


def _interrupts(inputs: Tensors, request: Any) -> Any:
    raise KeyboardInterrupt


def _recurses(inputs: Tensors, request: Any) -> Any:
    return _recurses(inputs, request)


def _imports(inputs: Tensors, request: Any) -> Any:
    import tritonclient.grpc

    assert tritonclient.grpc.InferInput("X", [1, 4], "FP32").name() == "X"
    return inputs


def _leaves_a_thread(inputs: Tensors, request: Any) -> Any:
    threading.Thread(target=time.sleep, args=(0.2,)).start()
    return inputs


def _keeps_and_changes(inputs: Tensors, request: Any) -> Any:
    """Answers at once and goes on writing to what it gave away."""
    given = np.array(inputs["X"])

    def write() -> None:
        for _ in range(50):
            given[...] = np.nan
            time.sleep(0.001)

    threading.Thread(target=write).start()
    return {"X": given}


_FAULTS: dict[str, Callable[[Tensors, Any], Any]] = {
    "none": lambda inputs, request: inputs,
    "raises": _raises,
    "sleeps": _sleeps,
    "forks": _forks,
    "forks and returns": _forks_and_returns,
    "forks and raises": _forks_and_raises,
    "runs a program": _runs_a_program,
    "exits": _exits,
    "interrupts": _interrupts,
    "recurses": _recurses,
    "imports": _imports,
    "leaves a thread": _leaves_a_thread,
    "keeps and changes": _keeps_and_changes,
    "wrong name": lambda inputs, request: {"Z": inputs["X"]},
    "too wide": lambda inputs, request: {"X": np.zeros((1, 5), np.float32)},
    "too many rows": lambda inputs, request: {"X": np.zeros((5, 4), np.float32)},
    "other rows": lambda inputs, request: {"X": np.zeros((2, 4), np.float32)},
    "wrong type": lambda inputs, request: {"X": inputs["X"].astype(np.float64)},
    "no array": lambda inputs, request: {"X": object()},
    "none at all": lambda inputs, request: None,
}
