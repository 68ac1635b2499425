"""Waiting requests of one model, first in first out, committed ones before regular ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf
from typing import final


@final
@dataclass(slots=True)  # not frozen: one is made for every request, and frozen ones take three times as long
class Waiting:
    """One queued request; nobody changes it.

    Attributes:
        ticket: identifies the request across all models.
        rows: items along the batch axis; 1 for a model without one.
        variant: input-shape variant; only equal ones share a batch.
        arrived: seconds on the caller's monotonic clock.
        deadline: same clock; None waits for ever.
        committed: a sub-call of a running meta: it goes before regular requests, and only a deadline that
            has passed takes it out.
    """

    ticket: int
    rows: int
    variant: int | None
    arrived: float
    deadline: float | None = None
    committed: bool = False


@final
class _Lane:
    """Requests in order of arrival, with their deadlines in a heap.

    What leaves stays in the heap until it comes to the top, or until such entries are the most.
    """

    __slots__ = ("_due", "endless", "latest", "waiting")

    def __init__(self) -> None:
        self.waiting: OrderedDict[int, Waiting] = OrderedDict()
        self.latest = -inf
        self.endless = False
        self._due: list[tuple[float, int]] = []

    def push(self, request: Waiting) -> None:
        if not self.waiting:
            self.latest, self.endless = -inf, False
        self.waiting[request.ticket] = request
        if request.deadline is None:
            self.endless = True
            return
        self.latest = max(self.latest, request.deadline)
        heappush(self._due, (request.deadline, request.ticket))
        if len(self._due) > 2 * len(self.waiting) + 64:
            self._due = [entry for entry in self._due if entry[1] in self.waiting]
            heapify(self._due)

    def soonest(self) -> float:
        due = self._due
        while due and due[0][1] not in self.waiting:
            heappop(due)
        return due[0][0] if due else inf

    def pop_due(self, before: float) -> Iterator[Waiting]:
        while self.soonest() < before:
            yield self.waiting.pop(heappop(self._due)[1])


@final
class ModelQueue:
    """FIFO with removal from the middle.

    Every operation takes constant or, where deadlines are concerned, logarithmic time; `prefix` takes as
    much as the batch is long.

    Attributes:
        rows: of all that waits.
    """

    __slots__ = ("_committed", "_regular", "rows")

    def __init__(self) -> None:
        self._committed = _Lane()
        self._regular = _Lane()
        self.rows = 0

    def __len__(self) -> int:
        return len(self._committed.waiting) + len(self._regular.waiting)

    def __iter__(self) -> Iterator[Waiting]:
        """Oldest first, committed before regular."""
        return chain(self._committed.waiting.values(), self._regular.waiting.values())

    @property
    def head(self) -> Waiting | None:
        """The request that goes first."""
        return next(iter(self), None)

    @property
    def variant(self) -> int | None:
        """Of the head, None as well when nothing waits."""
        head = self.head
        return None if head is None else head.variant

    @property
    def soonest(self) -> float:
        """The soonest deadline of a regular request, infinite when there is none."""
        return self._regular.soonest()

    @property
    def latest(self) -> float:
        """No regular request has a later deadline."""
        return self._regular.latest

    @property
    def last_chance(self) -> float:
        """After this time every regular request is late; infinite where one has no deadline."""
        return inf if self._regular.endless else self._regular.latest

    @property
    def next_due(self) -> float:
        """The soonest deadline of all, infinite when there is none."""
        return min(self._committed.soonest(), self._regular.soonest())

    def push(self, request: Waiting) -> None:
        """Appends `request`; ValueError when its ticket already waits."""
        if request.ticket in self._regular.waiting or request.ticket in self._committed.waiting:
            raise ValueError(f"ticket {request.ticket} is already queued")
        (self._committed if request.committed else self._regular).push(request)
        self.rows += request.rows

    def remove(self, ticket: int) -> Waiting | None:
        """Takes one request out, wherever it stands; None when it is not here."""
        request = self._regular.waiting.pop(ticket, None) or self._committed.waiting.pop(ticket, None)
        if request is not None:
            self.rows -= request.rows
        return request

    def take(self, count: int) -> tuple[Waiting, ...]:
        """Removes and returns the first `count`."""
        taken: list[Waiting] = []
        for lane in (self._committed.waiting, self._regular.waiting):
            taken += [lane.popitem(last=False)[1] for _ in range(min(len(lane), count - len(taken)))]
        self.rows -= sum([request.rows for request in taken])
        return tuple(taken)

    def pop_due(self, before: float, *, committed: bool) -> list[Waiting]:
        """Takes out requests whose deadline is before a time; of the committed only if so told."""
        due = list(self._regular.pop_due(before))
        if committed:
            due += self._committed.pop_due(before)
        self.rows -= sum(request.rows for request in due)
        return due

    def prefix(self, limit: int) -> list[Waiting]:
        """The longest run from the head that shares its variant and has at most `limit` rows.

        The head always counts. A long queue costs no more than a full batch.
        """
        waiting = iter(self)
        head = next(waiting, None)
        if head is None:
            return []
        run, variant, total = [head], head.variant, head.rows
        for request in waiting:
            total += request.rows
            if total > limit or request.variant != variant:
                break
            run.append(request)
        return run
