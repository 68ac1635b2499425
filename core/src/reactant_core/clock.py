"""Time as an argument: everything that waits or measures takes a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol, final


class Clock(Protocol):
    """A source of monotonic time."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary origin; never goes back."""
        ...


@final
class SystemClock:
    """The machine's monotonic clock."""

    __slots__ = ()
    # No frame of ours between: it is asked several times a request.
    monotonic = staticmethod(time.monotonic)


SYSTEM_CLOCK: Clock = SystemClock()
