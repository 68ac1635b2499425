"""What the routing table and the settings mean for a placement. Pure; fast enough for 10,000 models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, final

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_policy.placement.membership import Fleet
from reactant_policy.placement.model import Knobs, WorkerRoom
from reactant_policy.placement.packing import PackingKnobs, Placeable
from reactant_policy.routing.packed import Fill
from reactant_policy.routing.table import RoutingTable, WorkerView

DISCIPLINES: Final = ("fifo", "edf")
"""A worker that shares its device out by itself (`fair`) would work against the placement."""

_NAMED: Final = 8
_LOADING: Final = "LOADING"


@final
class FleetReader:
    """The fleet in a routing table; the same object as long as nothing of it has changed."""

    __slots__ = ("_fleet", "_table")

    def __init__(self) -> None:
        self._table: RoutingTable | None = None
        self._fleet = Fleet()

    def read(self, table: RoutingTable) -> Fleet:
        """The workers of `table` that take placements, and the models they have READY."""
        if table is self._table:
            return self._fleet
        self._table = table
        workers = frozenset(name for name, view in table.workers.items() if takes_placements(view))
        eligible = {name: route.candidates for name, route in table.routes.items()}
        if any(view.available and view.name not in workers for view in table.workers.values()):
            for name, candidates in eligible.items():
                eligible[name] = tuple(worker for worker in candidates if worker in workers)
        away = [view for view in table.workers.values() if not view.available]
        fleet = Fleet(
            workers,
            eligible,
            away=frozenset(view.name for view in away),
            returning=frozenset(view.name for view in away if _loading(view)),
        )
        if fleet != self._fleet:
            self._fleet = fleet
        return self._fleet


def _loading(view: WorkerView) -> bool:
    """Whether it was last seen loading."""
    return any(model.state == _LOADING for model in view.models.values())


def takes_placements(view: WorkerView) -> bool:
    """Whether models may be placed on a worker: available, on a discipline that leaves the order to us."""
    return view.available and view.discipline in DISCIPLINES


def unfit(views: Iterable[WorkerView]) -> list[str]:
    """A sentence for each discipline that is not one of `DISCIPLINES`, with the workers that run it."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for view in views:
        if view.discipline and view.discipline not in DISCIPLINES:
            found[view.discipline].append(view.name)
    return [
        f"{_listed(names)} {'runs' if len(names) == 1 else 'run'} scheduler.discipline {discipline}, and "
        f"scheduling.mode lpt_packing needs {' or '.join(DISCIPLINES)}: set "
        "INFERENCE_SERVER_SCHEDULER_DISCIPLINE=fifo on the workers, or another mode"
        for discipline, names in sorted(found.items())
    ]


def unknown(views: Iterable[WorkerView]) -> list[str]:
    """A sentence for each available worker that does not tell its discipline."""
    return [
        f"{view.name} does not tell its discipline, as ReactantServer's workers do: no model is placed on it"
        for view in views
        if view.available and not view.discipline
    ]


def missing(fleet: Fleet) -> list[str]:
    """A sentence when models are not on every worker."""
    total = len(fleet.workers)
    partial = [(name, len(has)) for name, has in fleet.eligible.items() if 0 < len(has) < total]
    if not partial:
        return []
    named = _listed([f"{name} ({count} of {total})" for name, count in partial])
    return [f"models that are not on every worker are placed on those that have them: {named}"]


def _listed(names: Iterable[str]) -> str:
    """The first of `names` in order, and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more


def placeables(table: RoutingTable, fleet: Fleet, config: SchedulingConfig) -> list[Placeable]:
    """Every model that some worker of the fleet has READY."""
    return [
        Placeable(
            name,
            table.routes[name].weight_bytes,
            eligible,
            tuple(worker for worker in table.routes[name].pinned if worker in fleet.workers),
            wanted(config, name),
        )
        for name, eligible in fleet.eligible.items()
        if eligible
    ]


def rooms(table: RoutingTable, fleet: Fleet) -> list[WorkerRoom]:
    """The workers of the fleet."""
    return [WorkerRoom(name, table.workers[name].weight_budget_bytes) for name in sorted(fleet.workers)]


def knobs(config: SchedulingConfig) -> PackingKnobs:
    """The settings that say when and how to place."""
    return PackingKnobs(
        rebalance_compute_seconds=config.rebalance_compute_seconds,
        first_rebalance_compute_seconds=config.first_rebalance_compute_seconds,
        halflife_compute_seconds=config.demand_halflife_compute_seconds,
        placement=Knobs(config.hysteresis, config.forbid_memory_oversubscription),
    )


def default_fill(config: SchedulingConfig) -> Fill:
    """How models without settings of their own fill their replicas."""
    return Fill(config.routing_fill_mode, config.routing_fill_factor)


def fills(config: SchedulingConfig) -> Mapping[str, Fill]:
    """The same of models with settings of their own."""
    return {
        name: Fill(own.fill_mode or config.routing_fill_mode, own.fill_factor or config.routing_fill_factor)
        for name, own in config.models.items()
        if own.fill_mode is not None or own.fill_factor is not None
    }


def wanted(config: SchedulingConfig, model: str) -> int | None:
    """Replicas that `model` is to have; None: on all that have it."""
    own = config.models.get(model)
    replicas = config.default_replicas if own is None or own.replicas is None else own.replicas
    return replicas if isinstance(replicas, int) else None
