"""One model's queue, and the batch it would run next."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import final

from reactant_policy.scheduling.coalesce import Batch, choose_batch, fullest_size
from reactant_policy.scheduling.cost import Costs, CostTable
from reactant_policy.scheduling.discipline import Candidate
from reactant_policy.scheduling.queues import ModelQueue, Waiting

UNMEASURED_SECONDS = 0.001
"""What a dispatch counts as until the first one of its variant is measured."""


@final
@dataclass(frozen=True, slots=True)
class ModelTerms:
    """What the scheduler must know of a model.

    Attributes:
        sizes: compiled batch sizes, ascending; (1,) for a model without a batch axis.
        coalesces: every input and output carries a batch axis.
        max_batch_size: bound on coalesced rows.
        weight: share of device time under contention, relative to other models, more than 0.
        max_queue_delay_seconds: longest that a batch waits to be filled.
    """

    sizes: tuple[int, ...]
    coalesces: bool
    max_batch_size: int
    weight: float = 1.0
    max_queue_delay_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < inf:
            raise ValueError(f"weight must be a number over 0, not {self.weight}")

    @property
    def limit(self) -> int:
        """Most rows put together; a single request may have more, and goes alone."""
        return min(self.max_batch_size, self.sizes[-1]) if self.coalesces else 1


@final
@dataclass(slots=True)
class Plan:
    """The next batch of a model, without regard to deadlines.

    Attributes:
        batch: what would run.
        seconds: device time it takes, 0 while nothing of its variant was measured.
        full_rows: rows of the batch that a long queue would run.
        full_seconds: device time of that one.
        open: it is not full, and a request that comes now could join.
        settled: a regular request that comes now changes nothing.
    """

    batch: Batch
    seconds: float
    full_rows: int
    full_seconds: float
    open: bool
    settled: bool


@final
class ModelState:
    """A loaded model in the scheduler. Its plan is kept until something changes it.

    Attributes:
        name: engine key.
        terms: what is fixed of it.
        queue: what waits.
        candidate: the model as a discipline sees it, all but the deadline up to date after `plan`.
        least_seconds: no dispatch takes less, 0 while nothing is measured.
    """

    __slots__ = ("_costs", "_plan", "_table", "candidate", "least_seconds", "name", "queue", "terms")

    def __init__(self, name: str, terms: ModelTerms, table: CostTable) -> None:
        self.name = name
        self.terms = terms
        self.queue = ModelQueue()
        self.candidate = Candidate(name)
        self.least_seconds = 0.0
        self._table = table
        self._costs: dict[int | None, Costs] = {}
        self._plan: Plan | None = None

    def push(self, request: Waiting) -> None:
        """Appends a request; ValueError when no size holds it."""
        largest = self.terms.sizes[-1]
        if request.rows > largest:
            raise ValueError(f"{request.rows} rows exceed the largest compiled size {largest}")
        self.queue.push(request)
        if request.committed or (self._plan is not None and not self._plan.settled):
            self._plan = None

    def revise(self, terms: ModelTerms) -> None:
        """Replaces the terms; ValueError when something waits that no new size holds."""
        if any(request.rows > terms.sizes[-1] for request in self.queue):
            raise ValueError(f"a request that waits for '{self.name}' fits none of the sizes {terms.sizes}")
        self.terms = terms
        self.measured()

    def changed(self) -> None:
        """Something left the queue."""
        self._plan = None

    def measured(self) -> None:
        """Costs of this model are new."""
        self.least_seconds = self._table.least(self.name)
        self._costs.clear()
        self._plan = None

    def costs(self, variant: int | None) -> Costs:
        """What the sizes of a variant take."""
        found = self._costs.get(variant)
        if found is None:
            found = self._costs[variant] = self._table.costs(self.name, variant, self.terms.sizes)
        return found

    def expected_seconds(self, variant: int | None, size: int) -> float:
        """Device time of one dispatch, never 0."""
        return self.costs(variant).seconds[size] or UNMEASURED_SECONDS

    def plan(self) -> Plan:
        """The batch that would run now; something must wait."""
        if self._plan is None:
            self._plan = self._make_plan()
        return self._plan

    def backlog_seconds(self) -> float:
        """Device time of all that waits, in full batches."""
        plan = self.plan()
        return self.queue.rows * plan.full_seconds / plan.full_rows

    def fills_until(self, occupied_seconds: float) -> float:
        """Until when the next batch may wait for more requests; minus infinity when it shall not.

        Not past what the soonest deadline allows a full batch, once the device is free.
        """
        plan = self.plan()
        if not plan.open:
            return -inf
        latest_start = self.queue.next_due - occupied_seconds - plan.full_seconds
        return min(self.candidate.arrived + self.terms.max_queue_delay_seconds, latest_start)

    def _make_plan(self) -> Plan:
        terms, queue, limit = self.terms, self.queue, self.terms.limit
        run = queue.prefix(limit)
        rows = [request.rows for request in run]
        head, waiting = run[0], sum(rows)
        costs = self.costs(head.variant)
        batch = choose_batch(rows, terms.sizes, costs.compared.__getitem__, limit)
        full = fullest_size(terms.sizes, costs.compared.__getitem__, limit)
        full_rows = min(full, limit)
        seconds = costs.seconds[batch.size]
        candidate = self.candidate
        candidate.weight = terms.weight
        candidate.arrived = head.arrived
        candidate.seconds = seconds or UNMEASURED_SECONDS
        candidate.coalesced = batch.count > 1
        ends = len(run) == len(queue)
        return Plan(
            batch=batch,
            seconds=seconds,
            full_rows=full_rows,
            full_seconds=costs.seconds[full],
            open=ends and waiting < full_rows,
            settled=not ends or waiting >= limit,
        )
