"""Loading ends when the file named by the environment is there: a load as long as the test wants."""

from __future__ import annotations

import os
import time
from typing import Any


def setup(bundle: Any) -> None:
    path = os.environ.get("FIXTURE_GATE")
    while path is not None and not os.path.exists(path):
        time.sleep(0.01)
