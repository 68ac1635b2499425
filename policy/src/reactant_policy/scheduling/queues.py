"""Waiting requests of one model, first in first out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Waiting:
    """One queued request.

    Attributes:
        ticket: identifies the request across all models.
        rows: items along the batch axis; 1 for a model without one.
        variant: input-shape variant; only equal ones share a batch.
        arrived: seconds on the caller's monotonic clock.
        deadline: same clock; None waits for ever.
    """

    ticket: int
    rows: int
    variant: int | None
    arrived: float
    deadline: float | None = None


@final
class ModelQueue:
    """FIFO with removal from the middle; every operation takes constant time, but `prefix`."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._waiting.values())

    @property
    def head(self) -> Waiting | None:
        """The oldest request."""
        return next(iter(self._waiting.values()), None)

    @property
    def variant(self) -> int | None:
        """The oldest request's variant, None as well when nothing waits."""
        return None if self.head is None else self.head.variant

    def push(self, request: Waiting) -> None:
        """Appends `request`; ValueError when its ticket already waits."""
        if request.ticket in self._waiting:
            raise ValueError(f"ticket {request.ticket} is already queued")
        self._waiting[request.ticket] = request

    def remove(self, ticket: int) -> Waiting | None:
        """Takes one request out, wherever it stands; None when it is not here."""
        return self._waiting.pop(ticket, None)

    def take(self, count: int) -> tuple[Waiting, ...]:
        """Removes and returns the `count` oldest."""
        return tuple(self._waiting.popitem(last=False)[1] for _ in range(count))

    def prefix(self, limit: int) -> list[int]:
        """Row counts of the longest run from the head that shares its variant.

        Stops once the rows reach `limit`, so that a long queue costs no more than a full batch.
        """
        rows: list[int] = []
        total = 0
        head = self.head
        if head is None:
            return rows
        for request in self:
            if request.variant != head.variant or (rows and total + request.rows > limit):
                break
            rows.append(request.rows)
            total += request.rows
        return rows
