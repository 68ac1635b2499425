"""The hook itself sleeps for `seconds`; leaves a line when it begins and another when it has ended."""

from __future__ import annotations

import os
import time
from typing import Any


def preprocess(inputs: dict[str, Any], request: Any) -> dict[str, Any]:
    _note(f"begin {request.id}")
    time.sleep(float(request.parameters.get("seconds", 0.0)))
    _note(f"end {request.id}")
    return inputs


def _note(line: str) -> None:
    path = os.environ.get("FIXTURE_HOOK_LOG")
    if path is not None:
        with open(path, "ab", buffering=0) as log:
            log.write(f"{line}\n".encode())
