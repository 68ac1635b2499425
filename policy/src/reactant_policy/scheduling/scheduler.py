"""The scheduling state of one device: events in, decisions out.

Not thread-safe and clockless: the caller serialises calls and passes the time of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, nextafter
from typing import final

from reactant_policy.scheduling.coalesce import Batch
from reactant_policy.scheduling.cost import CostTable
from reactant_policy.scheduling.discipline import Candidate, Discipline
from reactant_policy.scheduling.lateness import Margin
from reactant_policy.scheduling.ledger import Ledger, Promise
from reactant_policy.scheduling.model import ModelState, ModelTerms
from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.shedding import InTime, in_time

__all__ = ["Decision", "Dispatch", "ModelTerms", "Scheduler"]

Dropped = tuple[tuple[str, Waiting], ...]
"""(model, request) of those that were taken out."""


@final
@dataclass(frozen=True, slots=True)
class Dispatch:
    """One execution: `requests` of `model`, padded up to `size` rows, all of one variant.

    `promise` is what it was charged and when it should end.
    """

    model: str
    requests: tuple[Waiting, ...]
    rows: int
    size: int
    variant: int | None
    promise: Promise = field(repr=False, compare=False)


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """What to do at one moment.

    Attributes:
        dispatch: run this now; None when nothing is to run.
        dropped: (model, request) taken out: its deadline has passed, or it cannot be met any more (`edf`).
        wait_until: with no dispatch: decide again at this time at the latest; None is when the next
            request comes.
    """

    dispatch: Dispatch | None
    dropped: Dropped = ()
    wait_until: float | None = None


@final
class Scheduler:
    """Queues of every model on one device, and the choice of what runs next."""

    def __init__(self, discipline: Discipline, *, cost_ema_alpha: float = 0.2) -> None:
        self.cost = CostTable(cost_ema_alpha)
        self._discipline = discipline
        self._margin = Margin()
        self._ledger = Ledger()
        self._models: dict[str, ModelState] = {}
        # Only models with something waiting: idle ones must cost a decision nothing.
        self._active: dict[str, ModelState] = {}
        self._committed: dict[int, ModelState] = {}
        # No deadline is sooner. It may have left: then a look finds nothing, and sets this anew.
        self._next_due = inf

    def add_model(self, model: str, terms: ModelTerms) -> None:
        """Makes a model known, or replaces its terms; what waits stays."""
        state = self._models.get(model)
        if state is None:
            self._models[model] = ModelState(model, terms, self.cost)
        else:
            state.revise(terms)

    def set_weight(self, model: str, weight: float) -> None:
        """Changes the weight of a model; KeyError for an unknown one, ValueError unless it is over 0."""
        state = self._models[model]
        state.revise(replace(state.terms, weight=weight))

    def remove_model(self, model: str) -> tuple[Waiting, ...]:
        """Forgets a model and returns the requests that still waited for it."""
        state = self._models.pop(model, None)
        if state is None:
            return ()
        left = tuple(state.queue)
        self._active.pop(model, None)
        for request in left:
            self._committed.pop(request.ticket, None)
        self._discipline.forget(model)
        self.cost.forget(model)
        return left

    def depth(self, model: str) -> int:
        """Requests waiting for a model; 0 when it is unknown."""
        state = self._models.get(model)
        return 0 if state is None else len(state.queue)

    def enqueue(self, model: str, request: Waiting) -> None:
        """Appends a request; KeyError for an unknown model, ValueError when no size holds it."""
        state = self._models[model]
        state.push(request)
        if model not in self._active:
            self._active[model] = state
            self._discipline.woke(model)
        if request.committed:
            self._committed[request.ticket] = state
        if request.deadline is not None and request.deadline < self._next_due:
            self._next_due = request.deadline

    def cancel(self, model: str, ticket: int) -> Waiting | None:
        """Takes a waiting request out; None when it does not wait (any more)."""
        state = self._models.get(model)
        request = None if state is None else state.queue.remove(ticket)
        if state is not None and request is not None:
            self._left(state, (request,))
        return request

    def next(self, now: float, in_flight_seconds: float = 0.0) -> Decision:
        """Removes and returns what should run now.

        Args:
            now: seconds on the caller's monotonic clock.
            in_flight_seconds: device time left of what was dispatched before.
        """
        dropped = self._expire(now)
        start = now + in_flight_seconds
        if self._committed:
            state = next(iter(self._committed.values()))
            return Decision(self._dispatch(state, state.plan().batch, start, now), tuple(dropped))
        if self._discipline.sheds:
            dropped += self._give_up(start)
        while self._active:
            ready, wait_until = self._ready(now, in_flight_seconds)
            if not ready:
                return Decision(None, tuple(dropped), wait_until)
            state = self._active[self._discipline.pick(ready).model]
            chosen = self._choose(state, start, alone=len(ready) == 1)
            if not chosen.late:
                batch = chosen.batch or state.plan().batch
                return Decision(self._dispatch(state, batch, start, now), tuple(dropped))
            for request in chosen.late:
                state.queue.remove(request.ticket)
            dropped += self._drop(state, chosen.late)
        return Decision(None, tuple(dropped))

    def seed(self, model: str, variant: int | None, size: int, seconds: float) -> None:
        """Records the device time of a trial execution, which counts as nobody's use of the device."""
        state = self._models.get(model)
        if state is not None:
            self.cost.observe(model, variant, size, seconds)
            state.measured()

    def observe(self, model: str, variant: int | None, size: int, seconds: float, now: float) -> None:
        """Records the device time of one dispatch that ended at `now`."""
        state = self._models.get(model)
        if state is not None:
            promise = self._ledger.settle(model, variant, size)
            if promise is not None:
                self._margin.execution.observe(now - promise.end)
                self._charge(state, seconds - promise.seconds, now)
            self.seed(model, variant, size, seconds)

    def withdrawn(self, dispatch: Dispatch, now: float) -> None:
        """Takes back what a dispatch was charged that never came to run, as nobody wants it any more."""
        state = self._models.get(dispatch.model)
        if self._ledger.withdraw(dispatch.promise) and state is not None:
            self._charge(state, -dispatch.promise.seconds, now)

    def delivered(self, seconds: float) -> None:
        """Records how long after the end of an execution its answers were with those who asked."""
        self._margin.delivery.observe(seconds)

    def _expire(self, now: float) -> list[tuple[str, Waiting]]:
        """Takes out every request whose deadline has passed."""
        dropped: list[tuple[str, Waiting]] = []
        if now >= self._next_due:
            for state in list(self._active.values()):
                if state.queue.next_due <= now:
                    dropped += self._drop(state, state.queue.pop_due(nextafter(now, inf), committed=True))
            self._next_due = min((state.queue.next_due for state in self._active.values()), default=inf)
        return dropped

    def _give_up(self, start: float) -> list[tuple[str, Waiting]]:
        """Takes out what no dispatch can save, wherever it waits."""
        dropped: list[tuple[str, Waiting]] = []
        for state in list(self._active.values()):
            end = start + state.least_seconds
            if state.queue.soonest < end:
                dropped += self._drop(state, state.queue.pop_due(end, committed=False))
        return dropped

    def _ready(self, now: float, in_flight_seconds: float) -> tuple[list[Candidate], float | None]:
        """Models whose next batch need not wait, and when the first of the others need not any more."""
        ready: list[Candidate] = []
        soonest = inf
        for state in self._active.values():
            state.plan()
            if state.terms.max_queue_delay_seconds:
                until = state.fills_until(in_flight_seconds + self._margin.seconds)
                if until > now:
                    soonest = min(soonest, until)
                    continue
            state.candidate.deadline = state.queue.soonest
            ready.append(state.candidate)
        return ready, None if soonest == inf else soonest

    def _choose(self, state: ModelState, start: float, *, alone: bool) -> InTime:
        if self._discipline.sheds:
            return in_time(state, self._active.values(), start, self._margin.seconds, alone=alone)
        return InTime(state.plan().batch)

    def _dispatch(self, state: ModelState, batch: Batch, start: float, now: float) -> Dispatch:
        variant = state.queue.variant
        seconds = state.expected_seconds(variant, batch.size)
        requests = state.queue.take(batch.count)
        self._left(state, requests)
        # At once, not when it ended: with several in flight the next choice must know of it.
        self._charge(state, seconds, now)
        promise = Promise(seconds, start + seconds)
        self._ledger.add(state.name, variant, batch.size, promise)
        return Dispatch(state.name, requests, batch.rows, batch.size, variant, promise)

    def _charge(self, state: ModelState, seconds: float, now: float) -> None:
        self._discipline.spent(state.name, state.terms.weight, seconds, now)

    def _drop(self, state: ModelState, requests: Sequence[Waiting]) -> list[tuple[str, Waiting]]:
        self._left(state, requests)
        return [(state.name, request) for request in requests]

    def _left(self, state: ModelState, requests: Sequence[Waiting]) -> None:
        """Follows up requests that left the queue of a model."""
        state.changed()
        if self._committed:
            for request in requests:
                self._committed.pop(request.ticket, None)
        if not state.queue:
            self._active.pop(state.name, None)
