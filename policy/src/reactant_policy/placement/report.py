"""What a placement says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from reactant_policy.placement.layout import Layout
from reactant_policy.placement.model import Homes, Move, Plan, Pressure, Reason
from reactant_policy.placement.problem import Bools, Problem

_LINES: Final = 10
"""Warnings of one kind that are given each; the rest is counted."""


def report(problem: Problem, layout: Layout, previous: Homes, before: Bools) -> Plan:
    """The plan that a layout makes, by names.

    Args:
        problem: what was placed.
        layout: where.
        previous: the homes before.
        before: the same as a matrix, as far as the workers still exist.
    """
    names = [worker.name for worker in problem.workers]
    models, workers = np.nonzero(layout.homes.T)
    shares = problem.compute[models] / np.maximum(layout.compute[workers], np.finfo(float).tiny)
    homes: dict[str, tuple[str, ...]] = {}
    weights: dict[tuple[str, str], float] = {}
    for model, worker, share in zip(models.tolist(), workers.tolist(), shares.tolist(), strict=True):
        name, home = problem.models[model].name, names[worker]
        homes[name] = (*homes.get(name, ()), home)
        weights[name, home] = min(share, 1.0)
    moves = tuple(_moves(problem, previous, homes))
    return Plan(
        homes=homes,
        moves=moves,
        placed=len(homes),
        bytes_moved=sum(move.bytes for move in moves),
        imbalance_before=_imbalance(problem, before),
        imbalance_after=_imbalance(problem, layout.homes),
        pressure={
            name: Pressure(compute, memory)
            for name, compute, memory in zip(
                names, layout.compute.tolist(), (layout.bytes * problem.per_budget).tolist(), strict=True
            )
        },
        weights=weights,
        warnings=_warnings(problem, layout),
    )


def _imbalance(problem: Problem, homes: Bools) -> float:
    """Worst compute share ÷ mean compute share, each model shared evenly by its homes; 0 without demand."""
    compute = problem.compute * (problem.chosen + problem.fixed.sum(axis=0))
    models, workers = np.nonzero(homes.T)
    share = (compute / np.maximum(homes.sum(axis=0), 1))[models]
    loads = np.bincount(workers, share, len(problem.workers))
    total = float(loads.sum())
    return float(loads.max()) * loads.size / total if total > 0.0 else 0.0


def _moves(problem: Problem, previous: Homes, homes: Homes) -> list[Move]:
    index = {worker.name: number for number, worker in enumerate(problem.workers)}
    allowed = problem.open | problem.fixed
    # A replica more or less leaves a model with homes that it would not choose now: those are all allowed.
    able = {
        model.name: (model.weight_bytes, {name for name in model.eligible if name in index}, number)
        for number, model in enumerate(problem.models)
        if previous.get(model.name) and previous[model.name] != homes[model.name]
    }
    moves = [
        Move(name, tuple(sorted(set(previous[name]))), (), 0, "lost")
        for name in problem.homeless
        if previous.get(name)
    ]
    for name, (size, eligible, number) in able.items():
        was, now = set(previous[name]), set(homes[name])
        gone, new = tuple(sorted(was - now)), tuple(sorted(now - was))
        if not (gone or new):
            continue
        reason: Reason = "balance"
        if any(worker not in eligible or not allowed[index[worker], number] for worker in gone):
            reason = "lost"
        elif len(was) != len(now):
            reason = "replicas"
        moves.append(Move(name, gone, new, size * len(new), reason))
    return sorted(moves, key=lambda move: move.model)


def _warnings(problem: Problem, layout: Layout) -> tuple[str, ...]:
    over = [
        f"{problem.workers[worker].name}: its models have {layout.bytes[worker]:.0f} bytes, its budget is "
        f"{problem.budget[worker]:.0f}"
        for worker in np.flatnonzero(layout.over)
    ]
    homeless = [f"{name}: no worker can take it" for name in problem.homeless]
    short = [
        f"{name}: {wanted} replicas are wanted, {able} workers can take it"
        for name, wanted, able in problem.short
    ]
    return (
        *_bounded(over, "workers have more bytes placed than their budget"),
        *_bounded(homeless, "models that no worker can take"),
        *_bounded(short, "models with more replicas wanted than workers that can take them"),
    )


def _bounded(lines: Sequence[str], what: str) -> list[str]:
    if len(lines) <= _LINES:
        return list(lines)
    return [*lines[:_LINES], f"{len(lines) - _LINES} more {what}"]
