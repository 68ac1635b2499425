"""Makes the simulation importable: it is a file of the checkout, not an installed package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
pytest.register_assert_rewrite("policy.tests.scheduling.simulation")
