"""A meta that hands its inputs to the one model it calls, and that model's outputs to the client."""

from __future__ import annotations

from typing import Any

_called: str


def setup(bundle: Any) -> None:
    global _called
    (_called,) = bundle.manifest.meta_calls


def run(inputs: dict[str, Any], call: Any, request: Any) -> Any:
    return call(_called, inputs)
