"""Bytes that lie on a full worker although they would fit: making room."""

from __future__ import annotations

from typing import Final, TypeAlias, final

import numpy as np

from reactant_policy.placement.exact import search
from reactant_policy.placement.layout import Layout
from reactant_policy.placement.problem import Bools, Ints

_CHAIN: Final = 6
"""Workers that a chain of models may touch."""
_LOOKS: Final = 2_000
"""Models that all chains of one repair may look at."""

_Steps: TypeAlias = list[tuple[int, int, int]]
"""Moves in the order in which they are to be made: model, worker it leaves, worker it comes to."""


def fit(layout: Layout, previous: Bools) -> None:
    """Takes models off workers that are over their budget, as far as a way is found.

    A greedy order strands models: one that fits on a single worker finds it taken by others that could be
    elsewhere. So a model is moved, the smallest that suffices first, or swapped for a smaller one; where
    neither is to be had, a chain of models each makes room for the one before (an augmenting path, as in
    bipartite matching); and a small catalogue is at last searched through. Every change lowers the bytes
    over budget.

    Args:
        layout: has every replica placed.
        previous: homes that are kept where there is a choice, workers x models.
    """
    if not layout.over.any():
        return
    chains = _Chains(layout)
    for worker in np.argsort(-layout.over, kind="stable").tolist():
        while layout.over[worker] > 0.0 and (
            chains.relieve(worker, 1) or _swap_out(layout, worker) or chains.relieve(worker, _CHAIN)
        ):
            pass
    if layout.over.any():
        search(layout, previous)


@final
class _Chains:
    """Chains of moves, with a bound on the work that all of them together may be."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._looks = _LOOKS

    def relieve(self, worker: int, length: int) -> bool:
        """Moves one model off a worker that is over its budget, by a chain of at most `length` moves."""
        for model in _leavers(self._layout, worker, float(self._layout.over[worker])):
            steps = self._way_out(model, worker, frozenset({worker}), length)
            if steps is not None:
                for step in steps:
                    self._layout.move(*step)
                return True
        return False

    def _way_out(self, model: int, worker: int, visited: frozenset[int], length: int) -> _Steps | None:
        """How a model can leave a worker; None when no way is found.

        It brings no worker over its budget. Each worker is visited once, so that no step takes the room
        that another was to find.
        """
        layout, problem = self._layout, self._layout.problem
        size = problem.bytes[model]
        choices = problem.choices[model]
        choices = choices[~layout.on[choices, model] & (problem.budget[choices] >= size)]
        choices = np.array([choice for choice in choices.tolist() if choice not in visited], dtype=np.intp)
        free = problem.budget[choices] - layout.bytes[choices]
        fits = choices[free >= size]
        if fits.size:
            compute = layout.compute[fits] + problem.compute[model]
            memory = (layout.bytes[fits] + size) * problem.per_budget[fits]
            return [(model, worker, int(fits[np.argmin(np.maximum(compute, memory))]))]
        if length <= 1:
            return None
        for index in np.argsort(-free, kind="stable"):
            target = int(choices[index])
            lacking = float(size - free[index])
            for other in _leavers(layout, target, lacking):
                self._looks -= 1
                if self._looks < 0:
                    return None
                if problem.bytes[other] < lacking:
                    break
                steps = self._way_out(other, target, visited | {target}, length - 1)
                if steps is not None:
                    return [*steps, (model, worker, target)]
        return None


def _leavers(layout: Layout, worker: int, over: float) -> list[int]:
    """Models whose leaving helps: the smallest that suffices, then larger, then smaller ones falling."""
    models: Ints = np.flatnonzero(layout.on[worker])
    size = layout.problem.bytes[models]
    models, size = models[size > 0.0], size[size > 0.0]
    order = np.lexsort((models, np.where(size >= over, size, -size), size < over))
    leavers: list[int] = models[order].tolist()
    return leavers


def _swap_out(layout: Layout, worker: int) -> bool:
    """Swaps a model for a smaller one of a worker that has room for the difference."""
    problem = layout.problem
    over = float(layout.over[worker])
    best: tuple[float, int, int, int] | None = None
    for partner in np.flatnonzero(layout.bytes < problem.budget).tolist():
        mine = np.flatnonzero(layout.on[worker] & problem.open[partner] & ~layout.on[partner])
        theirs = np.flatnonzero(layout.on[partner] & problem.open[worker] & ~layout.on[worker])
        freed = problem.bytes[mine][:, None] - problem.bytes[theirs][None, :]
        allowed = (freed > 0.0) & (freed <= problem.budget[partner] - layout.bytes[partner])
        if not allowed.any():
            continue
        # What suffices, by the least; else what helps most.
        rank = np.where(freed >= over, freed - over, (over - freed) * 1e3 + over)
        first, second = np.unravel_index(int(np.argmin(np.where(allowed, rank, np.inf))), rank.shape)
        found = (float(rank[first, second]), partner, int(mine[first]), int(theirs[second]))
        if best is None or found < best:
            best = found
    if best is None:
        return False
    _, partner, model, other = best
    layout.move(model, worker, partner)
    layout.move(other, partner, worker)
    return True
