"""A worker in virtual time: the real scheduler and pipeline around a device that takes what it costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from reactant_policy.pipeline import InFlight, Place, overlaps
from reactant_policy.routing.work import Totals
from reactant_policy.scheduling.disciplines import make_discipline
from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.scheduler import Dispatch, ModelTerms, Scheduler
from reactant_policy.simulate.catalogue import SimulatedModel

PIPELINE_DEPTH = 2
"""Executions in flight, as in a worker."""

_NOTHING = Totals(0.0, 0)

_SOON = 1e-9
"""Seconds that rounding may put between a moment and itself."""


@final
@dataclass(slots=True, eq=False)
class Execution:
    """What a device runs, or will run next.

    Attributes:
        dispatch: what the scheduler decided.
        place: its place among what is in flight.
        start: when the device begins it, seconds.
        end: when it is done.
        holds: nothing else can be prepared meanwhile.
    """

    dispatch: Dispatch
    place: Place
    start: float
    end: float
    holds: bool


@final
class SimulatedWorker:
    """One device and its queues. Whoever has the clock calls `step` after every event, and at its requests.

    Args:
        name: the worker.
        models: what it serves; costs are known from the start, as after a warm-up.
        discipline: which of `DISCIPLINE_NAMES` it schedules by.
        wake: called with a time at which `step` is due.
        launch: called with every execution when it is chosen; `end` is due at its `end`.
        coalesces: requests share executions.

    Attributes:
        totals: counters by model of what was served, as a worker reports them.
        late: tickets that were given up, until someone takes them out.
    """

    def __init__(
        self,
        name: str,
        models: Mapping[str, SimulatedModel],
        discipline: str,
        *,
        wake: Callable[[float], None],
        launch: Callable[[Execution], None],
        coalesces: bool = True,
    ) -> None:
        self.name = name
        self.totals: dict[str, Totals] = {}
        self.late: list[int] = []
        self._models = models
        self._wake = wake
        self._launch = launch
        self._coalesces = coalesces
        self._scheduler = Scheduler(make_discipline(discipline))
        self._in_flight = InFlight(PIPELINE_DEPTH)
        self._executions: deque[Execution] = deque()
        self._attached: set[str] = set()
        self._queued = 0

    def enqueue(self, now: float, ticket: int, model: str, rows: int, deadline: float | None) -> None:
        """A request arrives; ValueError when it has more rows than the model takes."""
        if model not in self._attached:
            self._attach(self._models[model])
        self._scheduler.enqueue(model, Waiting(ticket, rows, None, now, deadline))
        self._queued += 1

    def cancel(self, model: str, ticket: int) -> bool:
        """Takes a request out; False when it does not wait (any more)."""
        if model not in self._attached or self._scheduler.cancel(model, ticket) is None:
            return False
        self._queued -= 1
        return True

    def step(self, now: float) -> None:
        """Chooses what comes next, if the time has come."""
        while self._queued and not (self._executions and self._executions[-1].holds):
            due = self._in_flight.next_at(now)
            if due is None:
                return
            if due > now + _SOON:
                self._wake(due)
                return
            decision = self._scheduler.next(now, self._in_flight.left(now))
            self._queued -= len(decision.dropped)
            self.late += [request.ticket for _, request in decision.dropped]
            if decision.dispatch is None:
                if decision.wait_until is not None:
                    self._wake(decision.wait_until)
                return
            self._run(decision.dispatch, now)

    def end(self, now: float) -> Execution:
        """The device is done with the first of its executions."""
        execution = self._executions.popleft()
        dispatch = execution.dispatch
        seconds = self._in_flight.done(execution.place, now).seconds
        self._scheduler.observe(dispatch.model, dispatch.variant, dispatch.size, seconds, now)
        before = self.totals.get(dispatch.model, _NOTHING)
        self.totals[dispatch.model] = Totals(before.compute_seconds + seconds, before.rows + dispatch.rows)
        return execution

    def _attach(self, model: SimulatedModel) -> None:
        largest = model.max_batch_size
        self._scheduler.add_model(model.name, ModelTerms(model.sizes, self._coalesces, largest))
        for size in model.sizes:
            self._scheduler.seed(model.name, None, size, model.seconds(size))
        self._attached.add(model.name)

    def _run(self, dispatch: Dispatch, now: float) -> None:
        self._queued -= len(dispatch.requests)
        cost = self._scheduler.cost.measured(dispatch.model, dispatch.variant, dispatch.size)
        holds = not overlaps(cost, others_wait=bool(self._queued) or bool(self._executions))
        start = max(now, self._executions[-1].end) if self._executions else now
        end = start + self._models[dispatch.model].seconds(dispatch.size)
        execution = Execution(dispatch, self._in_flight.add(now, cost), start, end, holds)
        self._executions.append(execution)
        self._launch(execution)


def worker_names(count: int) -> Sequence[str]:
    """`count` names in whose order they sort; ValueError below 1."""
    if count < 1:
        raise ValueError(f"{count} workers; accepted is 1 or more")
    width = len(str(count - 1))
    return tuple(f"worker{index:0{width}}" for index in range(count))
