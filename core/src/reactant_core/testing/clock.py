"""A clock that moves only when told."""

from __future__ import annotations

from typing import final


@final
class FakeClock:
    """A `Clock` whose time is set by the test."""

    __slots__ = ("_now",)

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def monotonic(self) -> float:
        """The current time, seconds."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Moves time on by `seconds` (not negative) and returns the new time."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds} s")
        self._now += seconds
        return self._now
