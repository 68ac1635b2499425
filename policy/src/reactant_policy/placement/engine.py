"""The placement of a catalogue on a fleet. No I/O, no clock, no chance: equal input, equal placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

import numpy as np

from reactant_policy.placement.improve import Aim, drift, gains, largest_gain, lower
from reactant_policy.placement.layout import Layout
from reactant_policy.placement.model import Homes, Knobs, ModelDemand, Plan, WorkerRoom
from reactant_policy.placement.pack import keep, pack, plain_lpt
from reactant_policy.placement.problem import Bools, Problem, previous_homes, state_problem
from reactant_policy.placement.report import report
from reactant_policy.placement.room import fit

_TOLERANCE: Final = 0.005
"""How far from even a new placement may stay, as a share."""
_EVEN_TOLERANCE: Final = 0.02
"""The same for compute shares below the worst pressure."""
_REPACK_TOLERANCE: Final = 0.2
"""The same where models have homes and moves cost, as a share of the hysteresis."""
_REPACK_WORTH: Final = 0.5
"""What a move has to bring there, as a part of what is moved."""
_SMALL: Final = 20_000
"""Models times workers up to which a new placement is tried from several starts."""
_OTHER_SCALES: Final = (0.25, 4.0)
_ROUNDS: Final = 3
"""How often what was found may be where the search starts again."""


def plan(models: Sequence[ModelDemand], workers: Sequence[WorkerRoom], previous: Homes, knobs: Knobs) -> Plan:
    """Homes for all models.

    Homes of before are kept as far as they are allowed, what has none is packed (`pack.pack`), and what lies
    on a full worker is moved where there is room (`room.fit`). A local search (`improve.lower`) goes on from
    there. What it finds comes into force when that lowers the worst pressure, the worst compute share, or
    the compute share that some model shares, by more than `knobs.hysteresis` of it. Where it finds too
    little, a placement made anew is held to the same. Without any demand models stay, but for those that
    are given to workers with no model at all.

    Args:
        models: in any order; ValueError for two of one name.
        workers: in any order; ValueError for two of one name.
        previous: the homes in force; models and workers that are gone may be among them.
        knobs: how to choose.
    """
    problem = state_problem(models, workers)
    before = previous_homes(problem, previous)
    aim = Aim(
        memory=True,
        cap=inf,
        forbid=knobs.forbid_memory_oversubscription,
        tolerance=max(_TOLERANCE, _REPACK_TOLERANCE * knobs.hysteresis),
        previous=before,
        worth=_REPACK_WORTH,
    )
    if not (problem.models and problem.workers):
        return report(problem, keep(problem, before), previous, before)
    if not before.any():
        return report(problem, _anew(problem, aim, knobs.hysteresis), previous, before)
    kept = _first(problem, before, aim)
    layout, best_gain = kept, 0.0
    if not problem.compute.any():
        layout = _fill_empty(kept, aim)
    else:
        for _ in range(_ROUNDS):
            better, gain = _settle(layout, aim, knobs.hysteresis)
            best_gain = max(best_gain, gain)
            if better is None:
                break
            layout = better
    held = _held(layout, _evening(layout, aim))
    made = report(problem, layout, previous, before)
    return replace(made, best_gain=best_gain, held=len(held.difference(move.model for move in made.moves)))


def lower_bound(models: Sequence[ModelDemand], workers: Sequence[WorkerRoom]) -> float:
    """What no placement's worst pressure can be below.

    max(Σ compute ÷ workers, Σ bytes ÷ Σ budget, largest single share), after Graham (1969) for one resource.
    Every replica counts with all of its bytes; an unconstrained worker leaves no bound by Σ bytes.
    """
    problem = state_problem(models, workers)
    return _bounds(problem)[0] if problem.models else 0.0


def _bounds(problem: Problem) -> tuple[float, float]:
    """What the worst pressure and the worst compute share cannot be below."""
    able = problem.open | problem.fixed
    roomiest = np.where(able, problem.budget[:, None], 0.0).max(axis=0)
    replicas = problem.chosen + problem.fixed.sum(axis=0)
    memory = float(problem.bytes @ replicas / problem.budget.sum())
    compute = max(problem.mean_compute, float(problem.compute.max()))
    return max(compute, memory, float((problem.bytes / roomiest).max())), compute


def _first(problem: Problem, homes: Bools, aim: Aim, scale: float = 1.0) -> Layout:
    """The homes that are kept, and a place for everything else."""
    kept = keep(problem, homes)
    free = kept.copy()
    pack(free, scale=scale)
    if not (aim.forbid and free.over.any()):
        return free
    # Either may be the better one: to keep to the budgets from the start, or to mend it afterwards.
    pack(kept, forbid=True, scale=scale)
    return min(_mended(kept, aim), _mended(free, aim), key=_quality)


def _mended(layout: Layout, aim: Aim) -> Layout:
    if aim.forbid:
        fit(layout, aim.previous)
    return layout


def _quality(layout: Layout) -> tuple[float, float]:
    """Less is better."""
    return float(layout.over.sum()), layout.worst


def _anew(problem: Problem, aim: Aim, hysteresis: float) -> Layout:
    """A placement without regard to homes of before."""
    aim = replace(aim, tolerance=_TOLERANCE, worth=0.0)
    nothing = np.zeros_like(problem.open)
    starts = [_first(problem, nothing, aim)]
    if nothing.size <= _SMALL:
        # One order of things is as good as another, and they end in different places.
        starts.append(_mended(plain_lpt(problem), aim))
        starts.extend(_first(problem, nothing, aim, scale) for scale in _OTHER_SCALES)
    for start in starts:
        lower(start, aim)
    layout = min(starts, key=_quality)
    scale = _scale(problem)
    if scale > 1.0:
        # Pressure says nothing about compute while memory is what is short. Packed as if both were, a large
        # catalogue has compute even, too, for no worse a pressure.
        both = _first(problem, nothing, aim, scale)
        lower(both, replace(aim, enough=layout.worst, compute_cap=_top(both)))
        lower(both, replace(aim, enough=layout.worst))
        layout = min(both, layout, key=_quality)
    lower(layout, replace(_evening(layout, aim), tolerance=_EVEN_TOLERANCE))
    drift(layout, _evening(layout, aim), hysteresis)
    return layout


def _scale(problem: Problem) -> float:
    """What makes the mean compute share as large as the mean memory share, if that is larger; else 1."""
    replicas = problem.chosen + problem.fixed.sum(axis=0)
    memory = float(problem.bytes @ replicas / problem.budget.sum())
    return max(1.0, memory / problem.mean_compute) if problem.mean_compute > 0.0 else 1.0


def _polish(layout: Layout, aim: Aim) -> None:
    """Lowers the worst pressure; then compute shares, as far as no pressure rises above that."""
    lower(layout, aim)
    lower(layout, _evening(layout, aim))


def _evening(layout: Layout, aim: Aim) -> Aim:
    """The aim to even out compute under the worst pressure that there is.

    Where models have homes, the least possible and a little more will do as well: memory shares that all
    touch the worst leave compute no move.
    """
    cap = (
        layout.worst
        if aim.worth <= 0.0
        else max(layout.worst, _bounds(layout.problem)[0] * (1.0 + _TOLERANCE))
    )
    return replace(aim, memory=False, cap=cap)


def _settle(layout: Layout, aim: Aim, hysteresis: float) -> tuple[Layout | None, float]:
    """A layout that is better by more than the hysteresis, if there is one, and the best gain found."""
    gain = largest_gain(layout, _evening(layout, aim))
    bounds = _bounds(layout.problem)
    chosen: Layout | None = None
    if gain > hysteresis or max(_falls(layout, *bounds)) > hysteresis:
        searched = layout.copy()
        _polish(searched, aim)
        drift(searched, _evening(searched, aim), hysteresis)
        gain = max(gain, *_falls(layout, searched.worst, _top(searched)))
        if gain > hysteresis:
            chosen = searched
        reached = chosen or layout
        still = _falls(reached, *bounds)
        if still[0] > hysteresis or (still[1] > hysteresis and layout.on.size <= _SMALL):
            fresh = _anew(layout.problem, aim, hysteresis)
            falls = _falls(reached, fresh.worst, _top(fresh))
            # Nearly every model moves: for a better worst pressure, else only where models are few.
            wanted = falls[0] > hysteresis or (falls[1] > hysteresis and layout.on.size <= _SMALL)
            if wanted and falls[0] >= -_TOLERANCE:
                chosen, gain = fresh, max(gain, *_falls(layout, fresh.worst, _top(fresh)))
    return chosen, gain


def _top(layout: Layout) -> float:
    """The worst compute share."""
    return float(layout.compute.max())


def _falls(layout: Layout, worst: float, compute: float) -> tuple[float, float]:
    """By what share the worst pressure and the worst compute share would fall to these."""
    return (
        1.0 - worst / layout.worst if layout.worst > 0.0 else 0.0,
        1.0 - compute / _top(layout) if _top(layout) > 0.0 else 0.0,
    )


def _fill_empty(layout: Layout, aim: Aim) -> Layout:
    """Without any demand, workers that have no model at all get some: every model counts the same."""
    problem = layout.problem
    empty = layout.homes.sum(axis=1) == 0
    if not empty.any():
        return layout
    # So little that it bears on no pressure.
    alike = Layout(replace(problem, compute=np.full(len(problem.models), 1e-12)), layout.on.copy())
    lower(alike, replace(_evening(alike, aim), targets=empty))
    return Layout(problem, alike.on)


def _held(layout: Layout, aim: Aim) -> set[str]:
    """Models that are where they were although the load elsewhere is lower."""
    held: set[str] = set()
    for worker in range(len(layout.problem.workers)):
        models, _, _ = gains(layout, aim, worker, 0.0)
        held.update(layout.problem.models[model].name for model in models[aim.previous[worker, models]])
    return held
