"""Makes the helpers in `support` importable: they are files of the checkout, not an installed package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
pytest.register_assert_rewrite("services.gateway.tests.support")
