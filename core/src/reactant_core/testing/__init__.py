"""Helpers for tests of every service: fakes, patience and free ports. Never imported by services."""

from __future__ import annotations

from reactant_core.testing.asynchronous import async_test
from reactant_core.testing.clock import FakeClock
from reactant_core.testing.eventually import eventually, eventually_sync
from reactant_core.testing.ports import free_port, free_range

__all__ = ["FakeClock", "async_test", "eventually", "eventually_sync", "free_port", "free_range"]
