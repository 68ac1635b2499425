"""What was expected of each dispatch in flight."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import final

_MOST_PROMISES = 64
"""More than are ever in flight. Those of failed executions stay until a later one ends."""


@final
@dataclass(frozen=True, slots=True)
class Promise:
    """A dispatch in flight.

    Attributes:
        seconds: device time expected.
        end: expected, on the caller's monotonic clock.
    """

    seconds: float
    end: float


@final
class Ledger:
    """Promises in the order in which the device keeps them."""

    def __init__(self) -> None:
        self._promises: deque[tuple[tuple[str, int | None, int], Promise]] = deque(maxlen=_MOST_PROMISES)

    def add(self, model: str, variant: int | None, size: int, promise: Promise) -> None:
        """A dispatch is on its way."""
        self._promises.append(((model, variant, size), promise))

    def withdraw(self, promise: Promise) -> bool:
        """A dispatch will not run; False when its promise is not here (any more)."""
        for place, (_, added) in enumerate(self._promises):
            if added is promise:
                del self._promises[place]
                return True
        return False

    def settle(self, model: str, variant: int | None, size: int) -> Promise | None:
        """What was promised of the oldest such dispatch, which ended; those before it never will."""
        for place, (dispatch, promise) in enumerate(self._promises):
            if dispatch == (model, variant, size):
                for _ in range(place + 1):
                    self._promises.popleft()
                return promise
        return None
