"""Reads its vocabulary in plain Python, as bundles do: half a second in which the interpreter is shared."""

from __future__ import annotations

import time
from typing import Any

SECONDS = 0.5


def setup(bundle: Any) -> None:
    words: dict[str, int] = {}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        words[f"word-{len(words) % 10_000}"] = len(words)


def preprocess(inputs: dict[str, Any], request: Any) -> dict[str, Any]:
    return inputs
