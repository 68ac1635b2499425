"""Answers with what the hooks were told about the request, as JSON."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray


def preprocess(inputs: dict[str, NDArray[Any]], request: Any) -> dict[str, NDArray[Any]]:
    try:
        request.parameters["added"] = 1
    except TypeError:
        return inputs
    raise AssertionError("the parameters can be written to")


def postprocess(outputs: dict[str, NDArray[Any]], request: Any) -> dict[str, Any]:
    left = None if request.deadline is None else request.deadline - time.monotonic()
    told = {
        "id": request.id,
        "priority": request.priority,
        "seconds_left": left,
        "parameters": {
            key: [type(value).__name__, repr(value) if isinstance(value, float) else value]
            for key, value in request.parameters.items()
        },
    }
    seen = np.empty(len(outputs["Y"]), np.object_)
    seen[:] = json.dumps(told, ensure_ascii=False).encode()
    return {"Y": outputs["Y"], "told": seen}
