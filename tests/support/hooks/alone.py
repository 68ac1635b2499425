"""A meta that calls nothing: BYTES in, the same out, after as many seconds as the parameter says."""

from __future__ import annotations

import os
import time
from typing import Any


def run(inputs: dict[str, Any], call: Any, request: Any) -> dict[str, Any]:
    path = os.environ.get("FIXTURE_HOOK_LOG")
    if path is not None:
        with open(path, "ab", buffering=0) as log:
            log.write(f"begin {request.id}\n".encode())
    time.sleep(float(request.parameters.get("seconds", 0.0)))
    return {"echo": inputs["text"]}
