"""The first cut of a placement: keep what was, then the heaviest first."""

from __future__ import annotations

from typing import Final

import numpy as np

from reactant_policy.placement.layout import Layout
from reactant_policy.placement.problem import Bools, Floats, Ints, Problem

_LEVELLING: Final = 0.02
"""Part of the models, the lightest, that are packed by pressure as it is, whatever the scale."""
_SAME: Final = 1.0 + 1e-9
"""Bytes that differ by less than this factor are a tie."""


def keep(problem: Problem, previous: Bools) -> Layout:
    """The homes of before that are still allowed.

    A model that has more of them than it shall have leaves the workers under the highest pressure.
    """
    layout = Layout(problem, previous & problem.open)
    surplus = -layout.missing()
    for model in np.flatnonzero(surplus > 0):
        workers = np.flatnonzero(layout.on[:, model])
        # Stable, so that of two under equal pressure the last by name is left.
        falling = workers[::-1][np.argsort(-layout.pressure[workers[::-1]], kind="stable")]
        for worker in falling[: surplus[model]]:
            layout.take(int(model), int(worker))
    return layout


def pack(layout: Layout, *, forbid: bool = False, scale: float = 1.0) -> None:
    """Gives every replica that has none a worker: longest processing time first.

    Heaviest first, each to the worker whose pressure ends lowest (R. L. Graham, "Bounds on multiprocessing
    timing anomalies", SIAM J. Appl. Math. 17(2), 1969), where weight and pressure are the larger of two
    shares, compute and memory. Among equals, where more memory is left. A model without demand adds no
    pressure of compute anywhere: those are spread by memory, then by number.

    Args:
        layout: what is placed already.
        forbid: a worker without room comes last, whatever its pressure.
        scale: what compute counts, relative to memory, but for the lightest models, which level pressure.
    """
    problem = layout.problem
    missing = layout.missing()
    pending = heaviest_first(problem, scale)
    pending = pending[missing[pending] > 0]
    idle = problem.idle
    relative = 1.0 / _relative_budget(problem)
    hosted = layout.homes.sum(axis=1)
    unscaled = pending.size - int(pending.size * _LEVELLING)
    for number, (model, count) in enumerate(zip(pending.tolist(), missing[pending].tolist(), strict=True)):
        if number == unscaled:
            scale = 1.0
        for _ in range(count):
            worker = None if idle[model] else _plain_choice(layout, model, scale, forbid=forbid)
            if worker is None:
                choices = problem.choices[model]
                choices = choices[~layout.on[choices, model]]
                if forbid:
                    choices = _with_room(layout, model, choices)
                if idle[model]:
                    worker = _emptiest(layout, model, choices, relative, hosted)
                else:
                    worker = _least_pressed(layout, model, choices, scale)
            layout.put(model, worker)
            hosted[worker] += 1


def plain_lpt(problem: Problem) -> Layout:
    """Heaviest first, each to the worker whose pressure ends lowest, and nothing else: what to beat."""
    layout = Layout(problem, np.zeros_like(problem.open))
    for model in heaviest_first(problem).tolist():
        for _ in range(problem.chosen[model]):
            choices = problem.choices[model]
            choices = choices[~layout.on[choices, model]]
            layout.put(model, int(choices[np.argmin(_pressure_with(layout, model, choices))]))
    return layout


def heaviest_first(problem: Problem, scale: float = 1.0) -> Ints:
    """Models by the larger of the shares that a replica takes of a worker, equals by name.

    Its share of memory is that of the largest worker it may choose.
    """
    known: dict[int, float] = {}
    for choices in problem.choices:
        if id(choices) not in known:
            known[id(choices)] = float(problem.budget[choices].max(initial=0.0)) or np.inf
    largest = np.array([known[id(choices)] for choices in problem.choices], dtype=np.float64)
    weight = np.maximum(problem.compute * scale, problem.bytes / largest)
    order: Ints = np.argsort(-weight, kind="stable")
    return order


def _pressure_with(layout: Layout, model: int, choices: Ints, scale: float = 1.0) -> Floats:
    """Pressure of `choices` if the model came there."""
    problem = layout.problem
    compute = layout.compute[choices] + problem.compute[model]
    memory = (layout.bytes[choices] + problem.bytes[model]) * problem.per_budget[choices]
    pressure: Floats = np.maximum(compute * scale, memory)
    return pressure


def _plain_choice(layout: Layout, model: int, scale: float, *, forbid: bool) -> int | None:
    """The one worker that `_least_pressed` chooses, where any may be; None where it takes a closer look."""
    problem = layout.problem
    if problem.chosen[model] > 1 or problem.choices[model].size < layout.bytes.size:
        return None
    size = layout.bytes + problem.bytes[model]
    pressure = np.maximum((layout.compute + problem.compute[model]) * scale, size * problem.per_budget)
    worker = int(pressure.argmin())
    if forbid and size[worker] > problem.budget[worker]:
        return None
    return worker if np.count_nonzero(pressure <= pressure[worker]) == 1 else None


def _with_room(layout: Layout, model: int, choices: Ints) -> Ints:
    """Those of `choices` that have room for the model; all when none has."""
    problem = layout.problem
    fits = layout.bytes[choices] + problem.bytes[model] <= problem.budget[choices]
    if fits.all() or not fits.any():
        return choices
    with_room: Ints = choices[fits]
    return with_room


def _least_pressed(layout: Layout, model: int, choices: Ints, scale: float) -> int:
    pressure = _pressure_with(layout, model, choices, scale)
    ties = choices[pressure <= pressure.min()]
    if ties.size > 1:
        free = layout.problem.budget[ties] - layout.bytes[ties]
        ties = ties[free >= free.max()]
        # What has no budget is told apart by what it holds.
        return int(ties[np.argmin(layout.bytes[ties])])
    return int(ties[0])


def _emptiest(layout: Layout, model: int, choices: Ints, relative: Floats, hosted: Ints) -> int:
    memory = (layout.bytes[choices] + layout.problem.bytes[model]) * relative[choices]
    ties = choices[memory <= memory.min() * _SAME]
    return int(ties[np.argmin(hosted[ties])])


def _relative_budget(problem: Problem) -> Floats:
    """Budgets; that of an unconstrained worker is the largest there is, to compare them by."""
    bounded = problem.budget[np.isfinite(problem.budget)]
    return np.where(np.isfinite(problem.budget), problem.budget, bounded.max(initial=1.0))
