"""A meta that hands its inputs to the model that the request names."""

from __future__ import annotations

from typing import Any


def run(inputs: dict[str, Any], call: Any, request: Any) -> Any:
    return call(request.parameters["model"], inputs)
