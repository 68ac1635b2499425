"""What every worker serves, turned into one table of routes. Nothing here changes once built."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar, final

READY: Final = "READY"
"""State of a model that takes requests, as RepositoryIndex names it."""

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class ModelView:
    """A model as one worker describes it.

    Attributes:
        name: the model.
        state: `READY`, or any other word for a model that takes no requests.
        reason: why it is in that state; may be empty.
        idempotent: running a request twice does no harm.
        batch_input: an input whose shape tells the batch; None where the model has no batch axis.
        batch_axis: the batch axis of that input.
        max_batch_size: most items in one request; 0 where the model has no batch axis.
        seconds_per_item: measured device time, None before the first measurement.
        weight_bytes: its weights; of a meta model those of all that it calls.
        pinned: its weights never leave the device of this worker.
    """

    name: str
    state: str
    reason: str = ""
    idempotent: bool = False
    batch_input: str | None = None
    batch_axis: int = 0
    max_batch_size: int = 0
    seconds_per_item: float | None = None
    weight_bytes: int = 0
    pinned: bool = False


@final
@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as it was last seen.

    Attributes:
        name: the worker.
        available: it is reachable and says that it is ready.
        models: by name; of a worker that is not available, those it had last.
        discipline: its scheduling discipline: fair, fifo or edf; empty while it is not known.
        weight_budget_bytes: device memory that weights may fill; 0: no limit is known.
    """

    name: str
    available: bool
    models: Mapping[str, ModelView]
    discipline: str = ""
    weight_budget_bytes: int = 0


@final
@dataclass(frozen=True, slots=True)
class Route:
    """Where requests for one model can go, and how they count.

    Attributes:
        name: the model.
        candidates: available workers that have it READY, sorted; empty when it only exists somewhere.
        idempotent: every worker concerned says so.
        batch_input: the input to count items by; None: a request is one item.
        batch_axis: the batch axis of that input.
        seconds_per_item: device time of an item, the mean of the workers that measured it; None: none did.
        max_batch_size: most items of a request that a worker will take; 0 without a batch axis.
        weight_bytes: its weights on a worker, the most that one reports.
        pinned: of the candidates those whose device its weights never leave.
    """

    name: str
    candidates: tuple[str, ...]
    idempotent: bool = False
    batch_input: str | None = None
    batch_axis: int = 0
    seconds_per_item: float | None = None
    max_batch_size: int = 0
    weight_bytes: int = 0
    pinned: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Every model that some worker knows.

    Attributes:
        routes: by model; a name that is absent is known to no worker.
        workers: by name, those out of reach too.
        mean_seconds: the mean of `seconds_per_item` over the measured models; 0 when none is.
    """

    routes: Mapping[str, Route]
    workers: Mapping[str, WorkerView]
    mean_seconds: float = 0.0


EMPTY_TABLE: Final = RoutingTable(MappingProxyType({}), MappingProxyType({}))


def build_table(views: Iterable[WorkerView]) -> RoutingTable:
    """The table that these workers make; of two views with one name the later counts."""
    by_name = {view.name: view for view in views}
    workers = {name: by_name[name] for name in sorted(by_name)}
    return _table({}, workers, {model for view in workers.values() for model in view.models})


def with_worker(table: RoutingTable, view: WorkerView) -> RoutingTable:
    """The table after a change of one worker, new or known: `build_table` with it, for less work.

    Only the routes of models that this worker sees differently are made anew.
    """
    before = table.workers.get(view.name)
    if before is None:
        return build_table([*table.workers.values(), view])
    workers = {**table.workers, view.name: view}
    models = before.models.keys() | view.models.keys()
    if before.available == view.available:
        models = {model for model in models if before.models.get(model) != view.models.get(model)}
    return _table(table.routes, workers, models)


def _table(
    routes: Mapping[str, Route], workers: Mapping[str, WorkerView], changed: Iterable[str]
) -> RoutingTable:
    """Table of `workers`, sorted by name, that keeps `routes` but for the models that `changed`."""
    made = dict(routes)
    for model in changed:
        found = [(worker, worker.models[model]) for worker in workers.values() if model in worker.models]
        if found:
            made[model] = _route(model, found)
        else:
            made.pop(model, None)
    measured = [route.seconds_per_item for route in made.values() if route.seconds_per_item is not None]
    mean = math.fsum(measured) / len(measured) if measured else 0.0
    return RoutingTable(MappingProxyType(made), MappingProxyType(dict(workers)), mean)


def _route(name: str, holders: Sequence[tuple[WorkerView, ModelView]]) -> Route:
    taking = [(worker.name, model) for worker, model in holders if worker.available and model.state == READY]
    candidates = tuple(worker for worker, _ in taking)
    # Workers out of reach say nothing about a request that cannot go to them.
    views = [model for _, model in taking] or [model for _, model in holders]
    measured = [model.seconds_per_item for _, model in holders if model.seconds_per_item is not None]
    # Two versions in one fleet that disagree about the batch: a request counts as one item.
    batch = _agreed([(m.batch_input, m.batch_axis) for m in views if m.max_batch_size > 0])
    batch_input, batch_axis = batch or (None, 0)
    return Route(
        name,
        candidates,
        idempotent=all(model.idempotent for model in views),
        batch_input=batch_input,
        batch_axis=0 if batch_input is None else batch_axis,
        seconds_per_item=sum(measured) / len(measured) if measured else None,
        max_batch_size=0 if batch_input is None else max(model.max_batch_size for model in views),
        # One out of reach holds them none the less: what a placement knows must not change with a restart.
        weight_bytes=max(model.weight_bytes for _, model in holders),
        pinned=tuple(worker for worker, model in taking if model.pinned),
    )


def _agreed(values: Sequence[T]) -> T | None:
    return values[0] if values and all(value == values[0] for value in values) else None
