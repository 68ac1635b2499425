"""A bounded local search: moves and swaps that lower the higher load of two workers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, final

import numpy as np

from reactant_policy.placement.layout import Layout
from reactant_policy.placement.problem import Bools, Floats, Ints

_PARTNERS: Final = 3
"""Workers tried for a swap, the least loaded first; more where there are few models, up to all."""
_PAIRS: Final = 4096
"""Swaps tried for one worker, at least."""
_SAMPLE: Final = 64
"""Models of a worker that are tried for a swap at most."""
_STEPS_PER_WORKER: Final = 8
_FEWEST_STEPS: Final = 200
_PASSES: Final = 4
_TARGETS: Final = 12
"""Workers that a move looks at first, the least loaded; the others when none of these will do."""
_PROGRESS: Final = 1e-6
"""Smallest part of a load that a step has to take away."""
_BYTES_WEIGHT: Final = 1e-3
"""What the weights of the largest model count when moved, as a share of the load to be lowered."""


@final
@dataclass(frozen=True, slots=True)
class Aim:
    """What a search lowers, and what it leaves alone.

    Attributes:
        memory: the load of a worker is its pressure; else its compute share.
        cap: no worker comes to a pressure above this.
        forbid: no worker is brought over its budget, nor further over it.
        tolerance: what lies above even by less than this share of it is left alone.
        previous: homes that cost no bytes to come to, workers x models.
        targets: workers that may be given models; None: all.
        enough: what lies above this is not left alone for being even.
        compute_cap: no worker comes to a compute share above this.
        worth: part of what a moved model asks for that the higher load has to fall by, and of `tolerance`
            that a swap has to bring; 0 where moves cost nothing.
    """

    memory: bool
    cap: float
    forbid: bool
    tolerance: float
    previous: Bools
    targets: Bools | None = None
    enough: float = inf
    compute_cap: float = inf
    worth: float = 0.0


def lower(layout: Layout, aim: Aim) -> None:
    """Lowers the worst load; with `memory` off that of the next worker that can be relieved, too, and so on.

    Every step takes models off the most loaded worker, or swaps one for another's, so that the higher load of
    the two falls: no load ever rises above the one that was lowered, the worst never rises at all. It ends
    when nobody is left to relieve, when the rest is even to within `aim.tolerance`, or after a number of
    steps that depends on the number of workers alone.
    """
    waiting = np.ones(len(layout.problem.workers), dtype=np.bool_)
    for _ in range(_FEWEST_STEPS + _STEPS_PER_WORKER * waiting.size):
        load = _load(layout, aim)
        worker = int(np.argmax(np.where(waiting, load, -1.0)))
        if not waiting[worker]:
            break
        even = _even(layout, aim, waiting)
        if load[worker] <= min(even * (1.0 + aim.tolerance), aim.enough):
            break
        limit = float(load[worker]) * (1.0 - _PROGRESS)
        partner = _move(layout, aim, worker, limit, even)
        if partner is None:
            partner = _swap(
                layout, aim, worker, min(limit, float(load[worker]) * (1.0 - aim.worth * aim.tolerance))
            )
        if partner is not None:
            waiting[partner] = True
        elif aim.memory:
            break
        else:
            waiting[worker] = False
    layout.add_up()


def gains(layout: Layout, aim: Aim, worker: int, least: float) -> tuple[Ints, Ints, Floats]:
    """What the models of a worker that have demand would gain elsewhere.

    Returns:
        Those that would gain more than `least`, the best worker for each, and by what share of this worker's
        load the load there would be lower, with it.
    """
    load = _load(layout, aim)
    models = np.flatnonzero(layout.on[worker] & ~layout.problem.idle)
    rows = np.flatnonzero(load < load[worker] * (1.0 - least))
    if not (models.size and rows.size):
        return models[:0], models[:0], np.array([], dtype=np.float64)
    there = _load_with(layout, aim, models, rows)
    best = np.argmin(there, axis=0)
    gained: Floats = 1.0 - there[best, np.arange(models.size)] / load[worker]
    found = gained > least
    return models[found], rows[best[found]], gained[found]


def largest_gain(layout: Layout, aim: Aim) -> float:
    """The largest gain of any model; 0 when none would gain."""
    workers = range(len(layout.problem.workers))
    return max(
        (float(gains(layout, aim, worker, 0.0)[2].max(initial=0.0)) for worker in workers), default=0.0
    )


def drift(layout: Layout, aim: Aim, least: float) -> None:
    """Moves models until none would gain more than `least`, the heaviest of the most loaded worker first."""
    compute = layout.problem.compute
    for _ in range(_PASSES):
        waiting = np.ones(len(layout.problem.workers), dtype=np.bool_)
        moved = False
        while waiting.any():
            # One at a time, so that no worker is emptied while others are as full.
            worker = int(np.argmax(np.where(waiting, _load(layout, aim), -1.0)))
            models, best, _ = gains(layout, aim, worker, least)
            waiting[worker] = models.size > 0
            if models.size:
                index = int(np.argmax(compute[models]))
                layout.move(int(models[index]), worker, int(best[index]))
                moved = True
        if not moved:
            break
    layout.add_up()


def _load(layout: Layout, aim: Aim) -> Floats:
    return layout.pressure if aim.memory else layout.compute


def _even(layout: Layout, aim: Aim, waiting: Bools) -> float:
    """The load that these workers would have were all that lies on them shared evenly."""
    even = float(layout.compute[waiting].mean())
    if aim.memory:
        even = max(even, float(layout.bytes[waiting].sum() / layout.problem.budget[waiting].sum()))
    return even


def _load_with(layout: Layout, aim: Aim, models: Ints, rows: Ints) -> Floats:
    """Loads of some workers with one of these models, workers x models; infinite where it may not be."""
    problem = layout.problem
    compute = layout.compute[rows, None] + problem.compute[models]
    size = layout.bytes[rows, None] + problem.bytes[models]
    pressure = np.maximum(compute, size * problem.per_budget[rows, None])
    places = np.ix_(rows, models)
    allowed = problem.open[places] & ~layout.on[places] & (pressure <= aim.cap) & (compute <= aim.compute_cap)
    if aim.forbid:
        allowed &= size <= np.maximum(problem.budget, layout.bytes)[rows, None]
    if aim.targets is not None:
        allowed &= aim.targets[rows, None]
    loads: Floats = np.where(allowed, pressure if aim.memory else compute, np.inf)
    return loads


def _load_without(layout: Layout, aim: Aim, worker: int, models: Ints) -> Floats:
    """Loads of a worker, each without one of these models."""
    problem = layout.problem
    left: Floats = layout.compute[worker] - problem.compute[models]
    if aim.memory:
        memory = (layout.bytes[worker] - problem.bytes[models]) * problem.per_budget[worker]
        left = np.maximum(left, memory)
    return left


def _move(layout: Layout, aim: Aim, worker: int, limit: float, even: float) -> int | None:
    """Moves the model that leaves a worker and another nearest to `even`, both loads at `limit` or below.

    A worker that gave away more than it has too much would have to be filled again.

    Returns:
        The other worker; None when there is no such model.
    """
    models = np.flatnonzero(layout.on[worker])
    load = _load(layout, aim)
    lower = np.flatnonzero(load < limit)
    lower = lower[np.argsort(load[lower], kind="stable")]
    without = _load_without(layout, aim, worker, models)
    least = np.minimum(aim.worth * (load[worker] - without), aim.tolerance * load[worker])
    limits = np.minimum(limit, load[worker] - least)
    for rows in (lower[:_TARGETS], lower[_TARGETS:]):
        if not (models.size and rows.size):
            break
        ends = np.maximum(_load_with(layout, aim, models, rows), without)
        away = np.maximum(ends, 2.0 * even - without)
        cost = np.where(ends <= limits, away + _bytes_cost(layout, aim, models, rows) * limit, np.inf)
        row, index = np.unravel_index(int(np.argmin(cost)), cost.shape)
        if np.isfinite(cost[row, index]):
            target = int(rows[row])
            layout.move(int(models[index]), worker, target)
            # Far from even still: the largest model that may go is small.
            if load[worker] - load[target] > 4.0 * (load[worker] - ends[row, index]):
                _follow(layout, aim, worker, target, even)
            return target
    return None


def _bytes_cost(layout: Layout, aim: Aim, models: Ints, rows: Ints) -> Floats | float:
    """What the bytes that a move copies count, as a share of a load, workers x models."""
    if aim.worth <= 0.0:
        return 0.0
    size = layout.problem.bytes
    relative = size[models] * (_BYTES_WEIGHT / max(float(size.max()), 1.0))
    cost: Floats = np.where(aim.previous[np.ix_(rows, models)], 0.0, relative)
    return cost


def _follow(layout: Layout, aim: Aim, worker: int, target: int, even: float) -> None:
    """Moves as many more models to `target` as bring the two nearer to `even`: of thousands none weighs much.

    Largest first; the first that is not allowed ends it.
    """
    problem = layout.problem
    models = _movable(layout, worker, target)
    models = models[np.argsort(-problem.compute[models], kind="stable")]
    gone, come = (np.cumsum(values[models]) for values in (problem.compute, problem.bytes))
    ends = np.zeros(models.size)
    allowed = np.ones(models.size, dtype=np.bool_)
    for place, sign in ((worker, -1.0), (target, 1.0)):
        compute, size = layout.compute[place] + sign * gone, layout.bytes[place] + sign * come
        pressure = np.maximum(compute, size * problem.per_budget[place])
        if place == target:
            allowed &= (pressure <= aim.cap) & (compute <= aim.compute_cap)
            if aim.forbid:
                allowed &= size <= problem.budget[place]
        after = pressure if aim.memory else compute
        ends = np.maximum(ends, after if place == target else even + np.abs(after - even))
    ends = np.where(np.logical_and.accumulate(allowed), ends, np.inf)
    now = float(_load(layout, aim)[[worker, target]].max())
    if ends.min(initial=np.inf) < now * (1.0 - _PROGRESS):
        for model in models[: int(np.argmin(ends)) + 1].tolist():
            layout.move(model, worker, target)


def _swap(layout: Layout, aim: Aim, worker: int, limit: float) -> int | None:
    """Makes the best swap of two models with the first worker that allows one; see `_move`."""
    return next(
        (other for other in _partners(layout, aim, worker) if _swapped(layout, aim, worker, other, limit)),
        None,
    )


def _partners(layout: Layout, aim: Aim, worker: int) -> list[int]:
    """Whom to swap with: those with the least of what this worker has too much of."""
    memory = layout.bytes * layout.problem.per_budget
    share = memory if aim.memory and memory[worker] > layout.compute[worker] else layout.compute
    order = np.argsort(share, kind="stable")
    if aim.targets is not None:
        order = order[aim.targets[order]]
    # A worker has models ÷ workers of them, and so many times as many swaps with each other worker.
    each = max(layout.problem.bytes.size / order.size, 1.0) if order.size else 1.0
    count = max(_PARTNERS, int(_PAIRS / each**2))
    return [other for other in order[: count + 1].tolist() if other != worker][:count]


def _swapped(layout: Layout, aim: Aim, worker: int, partner: int, limit: float) -> bool:
    problem = layout.problem
    mine, theirs = _sample(layout, worker, partner), _sample(layout, partner, worker)
    if not (mine.size and theirs.size):
        return False
    compute = problem.compute[mine][:, None] - problem.compute[theirs]
    size = problem.bytes[mine][:, None] - problem.bytes[theirs]
    ends = np.zeros_like(compute)
    for place, sign in ((worker, -1.0), (partner, 1.0)):
        asked, held = layout.compute[place] + sign * compute, layout.bytes[place] + sign * size
        pressure = np.maximum(asked, held * problem.per_budget[place])
        allowed = (pressure <= aim.cap) & (asked <= aim.compute_cap)
        if aim.forbid:
            allowed &= held <= max(problem.budget[place], layout.bytes[place])
        ends = np.maximum(ends, np.where(allowed, pressure if aim.memory else asked, np.inf))
    first, second = np.unravel_index(int(np.argmin(ends)), ends.shape)
    if ends[first, second] > limit:
        return False
    layout.move(int(mine[first]), worker, partner)
    layout.move(int(theirs[second]), partner, worker)
    return True


def _movable(layout: Layout, source: int, target: int) -> Ints:
    return np.flatnonzero(layout.on[source] & layout.problem.open[target] & ~layout.on[target])


def _sample(layout: Layout, source: int, target: int) -> Ints:
    """Models that can go from one worker to another; of many an even selection by what they ask for."""
    models = _movable(layout, source, target)
    if models.size <= _SAMPLE:
        return models
    ordered = models[np.argsort(layout.problem.compute[models], kind="stable")]
    return ordered[np.linspace(0, ordered.size - 1, _SAMPLE).astype(np.intp)]
