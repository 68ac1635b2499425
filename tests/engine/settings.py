"""What the tests of the engine measure against."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.support.target import Target

Start = Callable[..., Target]
"""Starts a worker: discipline, models, settings of `scheduler`, environment variables by keyword."""

FULL = os.environ.get("REACTANT_TEST_FULL") == "1"

HALF_LIFE_SECONDS = 30.0 if FULL else 1.0
"""Memory of the discipline `fair`."""

EDF_QUEUE_DEPTH = 200
"""Most requests that may wait for one model of the worker with `edf`."""

LOADS = 20 if FULL else 4
PROGRAMS = LOADS
"""Bundles to load under load, each of which has to be compiled."""

IDLE = tuple(f"idle{number}" for number in range(10))
MODELS = {
    **dict.fromkeys(IDLE, "light"),
    "capped": "steady",
    "delayed": "steady",
}
"""Further names of bundles."""
DELAY_SECONDS = 0.6
"""How long a batch of the model `delayed` waits to be filled."""

METAS = ("via_echo", "staged")
