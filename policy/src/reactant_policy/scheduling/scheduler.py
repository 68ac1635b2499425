"""The scheduling state of one device: events in, dispatches out.

Not thread-safe and clockless: the caller serialises calls and passes the time of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from reactant_policy.scheduling.coalesce import choose_batch
from reactant_policy.scheduling.cost import CostTable
from reactant_policy.scheduling.disciplines import Candidate, Discipline, fifo
from reactant_policy.scheduling.queues import ModelQueue, Waiting


@final
@dataclass(frozen=True, slots=True)
class ModelTerms:
    """What the scheduler must know of a model.

    Attributes:
        sizes: compiled batch sizes, ascending; (1,) for a model without a batch axis.
        coalesces: every input and output carries a batch axis.
        max_batch_size: bound on coalesced rows.
    """

    sizes: tuple[int, ...]
    coalesces: bool
    max_batch_size: int


@final
@dataclass(frozen=True, slots=True)
class Dispatch:
    """One execution: `requests` of `model`, padded up to `size` rows, all of one variant."""

    model: str
    requests: tuple[Waiting, ...]
    rows: int
    size: int
    variant: int | None


@final
class Scheduler:
    """Queues of every model on one device, and the choice of what runs next."""

    def __init__(self, discipline: Discipline = fifo, *, cost_ema_alpha: float = 0.2) -> None:
        self.cost = CostTable(cost_ema_alpha)
        self._discipline = discipline
        self._terms: dict[str, ModelTerms] = {}
        self._queues: dict[str, ModelQueue] = {}
        # Only models with something waiting: idle ones must cost a decision nothing.
        self._active: dict[str, ModelQueue] = {}

    def add_model(self, model: str, terms: ModelTerms) -> None:
        """Makes a model known, or replaces its terms; what waits stays."""
        self._terms[model] = terms
        self._queues.setdefault(model, ModelQueue())

    def remove_model(self, model: str) -> tuple[Waiting, ...]:
        """Forgets a model and returns the requests that still waited for it."""
        self._terms.pop(model, None)
        self._active.pop(model, None)
        self.cost.forget(model)
        queue = self._queues.pop(model, None)
        return () if queue is None else tuple(queue)

    def depth(self, model: str) -> int:
        """Requests waiting for a model; 0 when it is unknown."""
        queue = self._queues.get(model)
        return 0 if queue is None else len(queue)

    def enqueue(self, model: str, request: Waiting) -> None:
        """Appends a request; KeyError for an unknown model, ValueError when no size holds it."""
        terms = self._terms[model]
        if request.rows > terms.sizes[-1]:
            raise ValueError(f"{request.rows} rows exceed the largest compiled size {terms.sizes[-1]}")
        queue = self._queues[model]
        queue.push(request)
        self._active[model] = queue

    def cancel(self, model: str, ticket: int) -> Waiting | None:
        """Takes a waiting request out; None when it does not wait (any more)."""
        queue = self._queues.get(model)
        if queue is None:
            return None
        request = queue.remove(ticket)
        if not queue:
            self._active.pop(model, None)
        return request

    def next_dispatch(self) -> Dispatch | None:
        """Removes and returns what should run now; None when nothing waits."""
        if not self._active:
            return None
        model = self._discipline(
            Candidate(name, queue.head.arrived)
            for name, queue in self._active.items()
            if queue.head is not None
        )
        queue, terms = self._active[model], self._terms[model]
        limit = min(terms.max_batch_size, terms.sizes[-1]) if terms.coalesces else 1
        variant = queue.variant
        batch = choose_batch(
            queue.prefix(limit), terms.sizes, lambda size: self.cost.estimate(model, variant, size), limit
        )
        requests = queue.take(batch.count)
        if not queue:
            del self._active[model]
        return Dispatch(model, requests, batch.rows, batch.size, variant)

    def observe(self, model: str, variant: int | None, size: int, seconds: float) -> None:
        """Records the device time of one execution."""
        if model in self._terms:
            self.cost.observe(model, variant, size, seconds)
