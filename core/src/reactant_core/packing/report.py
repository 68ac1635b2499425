"""The state of the scheduling as one value."""

from __future__ import annotations

from collections import defaultdict

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.packing.board import Board
from reactant_core.packing.catalogue import default_fill, fills, wanted
from reactant_core.packing.packer import Packer
from reactant_core.packing.status import ModelStatus, SchedulingStatus, WorkerStatus
from reactant_policy.placement.model import Homes
from reactant_policy.routing.packed import Packed
from reactant_policy.routing.table import READY, RoutingTable


def report(packer: Packer, board: Board) -> SchedulingStatus:
    """What `packer` does now."""
    config, planner, table = packer.config, packer.planner, board.table
    homes = homes_of(packer, board)
    demand = {} if planner is None else planner.demand()
    in_flight: defaultdict[str, int] = defaultdict(int)
    for (_, model), count in board.replica_outstanding.items():
        in_flight[model] += count
    names = sorted({*(name for name in table.routes if known(table, name)), *config.models})
    packed = Packed(default_fill(config), fills(config)) if planner is None else planner.packed
    models = tuple(
        _model(
            name,
            config,
            table,
            packed,
            homes=homes.get(name, ()),
            demand=demand.get(name, 0.0),
            in_flight=in_flight[name],
        )
        for name in names
    )
    last = None if planner is None else planner.last
    return SchedulingStatus(
        policy=config,
        workers=_workers(models, table, board),
        models=models,
        placed=last is not None,
        last=last,
        last_seconds_ago=packer.seconds_since_placed(),
        repacks=dict(packer.repacks),
        next_compute_seconds=None if planner is None else planner.compute_seconds_left(),
        persisted=False,
        warnings=packer.notices.now,
    )


def homes_of(packer: Packer, board: Board) -> Homes:
    """The workers of each model: those it is placed on, and of one that is not placed those that have it."""
    routes = board.table.routes
    planner = packer.planner
    placed: Homes = {} if planner is None else planner.homes
    return {name: placed.get(name) or route.candidates for name, route in routes.items()}


def known(table: RoutingTable, model: str) -> bool:
    """Whether some worker has `model` READY, or had when it was lost."""
    views = (view.models.get(model) for view in table.workers.values())
    return any(view is not None and view.state == READY for view in views)


def _model(
    name: str,
    config: SchedulingConfig,
    table: RoutingTable,
    packed: Packed,
    *,
    homes: tuple[str, ...],
    demand: float,
    in_flight: int,
) -> ModelStatus:
    route, fill = table.routes.get(name), packed.fill(name)
    return ModelStatus(
        name,
        wanted(config, name),
        homes,
        () if route is None else route.candidates,
        demand,
        None if route is None else route.seconds_per_item,
        0 if route is None else route.weight_bytes,
        fill.mode,
        fill.factor,
        packed.quantum(name, 0 if route is None else route.max_batch_size),
        in_flight,
        name in config.models,
    )


def _workers(models: tuple[ModelStatus, ...], table: RoutingTable, board: Board) -> tuple[WorkerStatus, ...]:
    count: defaultdict[str, int] = defaultdict(int)
    compute: defaultdict[str, float] = defaultdict(float)
    held: defaultdict[str, int] = defaultdict(int)
    for model in models:
        for home in model.homes:
            count[home] += 1
            compute[home] += model.demand / len(model.homes)
            held[home] += model.weight_bytes
    return tuple(
        WorkerStatus(
            name,
            view.available,
            view.discipline,
            count[name],
            compute[name],
            held[name],
            view.weight_budget_bytes,
            held[name] / view.weight_budget_bytes if view.weight_budget_bytes else 0.0,
            board.outstanding(name),
        )
        for name, view in sorted(table.workers.items())
    )
