"""A meta of as many stages as `steps` has elements, each an execution of `slow` that takes so many steps.

Notes what it does in the hook log, and stays on its thread for `seconds` before the first stage.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np


def run(inputs: dict[str, Any], call: Any, request: Any) -> dict[str, Any]:
    _note(f"begin {request.id}")
    time.sleep(float(request.parameters.get("seconds", 0.0)))
    y = inputs["X"]
    try:
        for index, steps in enumerate(inputs["steps"]):
            _note(f"stage {index} {request.id}")
            y = call("slow", {"X": y, "steps": np.array([[steps]], np.int32)})["Y"]
    except Exception:
        # What stops a meta whose request is over goes past this.
        return {"Y": y}
    finally:
        _note(f"end {request.id}")
    return {"Y": y}


def _note(line: str) -> None:
    path = os.environ.get("FIXTURE_HOOK_LOG")
    if path is not None:
        with open(path, "ab", buffering=0) as log:
            log.write(f"{line}\n".encode())
