"""Says of which version the hooks and an asset are; the program says it of itself and its weights."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

VERSION = 1
ASSET = [0]


def setup(bundle: Any) -> None:
    ASSET[0] = int((bundle.path / "asset.txt").read_text())


def postprocess(outputs: dict[str, Any], request: Any) -> dict[str, Any]:
    """Sleeps for as long as the `seconds` parameter says, so that a request can outlast its version."""
    time.sleep(request.parameters.get("seconds", 0.0))
    shape = outputs["weights"].shape
    return {
        **outputs,
        "hooks": np.full(shape, VERSION, np.float32),
        "asset": np.full(shape, ASSET[0], np.float32),
    }
