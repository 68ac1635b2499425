"""The exhaustive search for a placement within every budget."""

from __future__ import annotations

from typing import Final, final

import numpy as np

from reactant_policy.placement.layout import Layout
from reactant_policy.placement.problem import Bools

_STEPS: Final = 20_000
"""Placements of a replica that are tried; about a tenth of a second."""
_REPLICAS: Final = 64
"""A catalogue with more of them is not searched: the bound on steps would end it long before."""


def search(layout: Layout, previous: Bools) -> bool:
    """Replaces the chosen homes by some that are all within budget, if the search finds them.

    Depth first, the largest replica first, with two cuts: what is left to place must fit into the room that
    is left, and of workers that are alike one is tried. A model larger than any of its workers stays where it
    is, and so do those on workers that are over their budget through what nobody chooses.

    Args:
        layout: has every replica placed; untouched when nothing is found.
        previous: homes that are tried first, workers x models.
    """
    problem = layout.problem
    allowed = problem.open & (problem.bytes <= problem.budget[:, None])
    hopeless = allowed.sum(axis=0) < problem.chosen
    if int(problem.chosen[~hopeless].sum()) > _REPLICAS:
        return False
    base = Layout(problem, layout.on & hopeless)
    models = np.flatnonzero((problem.chosen > 0) & ~hopeless)
    found = _Search(base, models[np.argsort(-problem.bytes[models], kind="stable")].tolist(), previous).run()
    if found is None:
        return False
    layout.on[:] = base.on
    for model, worker in found:
        layout.on[worker, model] = True
    layout.add_up()
    return True


@final
class _Search:
    def __init__(self, base: Layout, models: list[int], previous: Bools) -> None:
        problem = base.problem
        self._size = problem.bytes.tolist()
        self._free = (problem.budget - base.bytes).tolist()
        self._choices = {model: problem.choices[model].tolist() for model in models}
        self._previous = previous
        self._kind = [column.tobytes() for column in problem.open]
        self._replicas = [model for model in models for _ in range(problem.chosen[model])]
        self._to_come = np.cumsum([self._size[model] for model in self._replicas][::-1])[::-1].tolist()
        self._steps = _STEPS
        self._found: list[tuple[int, int]] = []

    def run(self) -> list[tuple[int, int]] | None:
        return self._found if self._place(0) else None

    def _place(self, number: int) -> bool:
        if number == len(self._replicas):
            return True
        if self._to_come[number] > sum(free for free in self._free if free > 0.0):
            return False
        model = self._replicas[number]
        size = self._size[model]
        taken = [worker for other, worker in self._found if other == model]
        seen: set[tuple[float, bytes]] = set()
        for worker in self._ordered(model):
            free = self._free[worker]
            alike = (free, self._kind[worker])
            if size > free or worker in taken or alike in seen:
                continue
            self._steps -= 1
            if self._steps < 0:
                return False
            seen.add(alike)
            self._free[worker] = free - size
            self._found.append((model, worker))
            if self._place(number + 1):
                return True
            self._found.pop()
            self._free[worker] = free
        return False

    def _ordered(self, model: int) -> list[int]:
        return sorted(
            self._choices[model],
            key=lambda worker: (not self._previous[worker, model], -self._free[worker], worker),
        )
