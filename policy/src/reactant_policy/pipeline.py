"""What the device has been given and has not finished: whose turn it is, what is left, what comes next.

Pure: all times are seconds on the caller's monotonic clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import final

STALL_FACTOR = 10.0
STALL_SECONDS = 30.0

LEAD_SECONDS = 0.002
LEAD_SHARE = 0.25
"""The next execution is prepared when the device is within this of being free: seconds, and share of what
runs. Enough to assemble a batch and to be wrong about a cost; not more, since what is chosen early can no
longer be joined by later requests, nor give way to something more urgent."""


def overdue_seconds(running: float, cost: float | None) -> float:
    """How long an execution is past what counts as stuck: ten times its cost, 30 s at least; else 0.

    Args:
        running: seconds since the device began it.
        cost: seconds it takes as a rule, None when it was never measured.
    """
    return max(0.0, running - max(STALL_SECONDS, STALL_FACTOR * (cost or 0.0)))


def overlaps(cost: float | None, *, others_wait: bool) -> bool:
    """Whether an execution on an idle device is worth a second thread, so that the next can be prepared.

    A short one alone is not: whoever comes meanwhile would be taken at once, and not with those who come
    a moment later.

    Args:
        cost: its learned device time in seconds, None when unknown.
        others_wait: there is something to prepare already.
    """
    return others_wait or cost is None or cost > LEAD_SECONDS


@final
@dataclass(slots=True, eq=False)
class Place:
    """One execution among those in flight.

    Attributes:
        cost: its learned device time in seconds, None when unknown.
        ready: when its inputs were ready; until they are, when it was chosen.
    """

    cost: float | None
    ready: float


@final
@dataclass(slots=True)
class Turn:
    """One execution's time on the device.

    Attributes:
        waited: seconds between its inputs being ready and the end of the execution before it.
        seconds: device time.
        end: when it ended.
    """

    waited: float
    seconds: float
    end: float


@final
class InFlight:
    """At most `depth` executions on a device that runs them one after the other, in the order given.

    While one runs the next lies ready, so what one took does not count from its own start: it is
    done − max(previous done, inputs ready).
    """

    __slots__ = ("_depth", "_free_since", "_places")

    def __init__(self, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"the pipeline depth must be at least 1, not {depth}")
        self._depth = depth
        self._places: deque[Place] = deque()
        self._free_since = float("-inf")

    def __len__(self) -> int:
        return len(self._places)

    def add(self, now: float, cost: float | None) -> Place:
        """An execution was chosen, behind all others."""
        place = Place(cost, now)
        self._places.append(place)
        return place

    def withdraw(self, place: Place) -> None:
        """It never came to run."""
        self._places.remove(place)

    def done(self, place: Place, now: float) -> Turn:
        """It has ended, as the first of all."""
        self._places.remove(place)
        begun = max(self._free_since, place.ready)
        self._free_since = now
        return Turn(begun - place.ready, now - begun, now)

    def left(self, now: float) -> float:
        """Device seconds until all have ended, by their costs; an unknown cost counts as nothing."""
        if not self._places:
            return 0.0
        running = now - max(self._free_since, self._places[0].ready)
        first, *others = (place.cost or 0.0 for place in self._places)
        return max(0.0, first - running) + sum(others)

    def next_at(self, now: float) -> float | None:
        """When to choose what comes after these, a time past or to come; None while `depth` are in flight."""
        if len(self._places) >= self._depth:
            return None
        if not self._places:
            return now
        lead = max(LEAD_SECONDS, LEAD_SHARE * (self._places[-1].cost or 0.0))
        return now + self.left(now) - lead

    def overdue(self, now: float) -> float:
        """`overdue_seconds` of the one that runs; 0 when none does."""
        if not self._places:
            return 0.0
        first = self._places[0]
        return overdue_seconds(now - max(self._free_since, first.ready), first.cost)
