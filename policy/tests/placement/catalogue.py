"""Catalogues and fleets to place, and what can be said of a placement by looking at it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from reactant_policy.placement.model import Homes, ModelDemand, Plan, WorkerRoom

GIB = 2**30
FULL = os.environ.get("REACTANT_TEST_FULL") == "1"
STEADY = settings(derandomize=not FULL, deadline=None, database=None, max_examples=1000 if FULL else 40)
"""The same examples in every run, but for the full one."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A random catalogue: lognormal demand and sizes, no share above half of one worker.

    Attributes:
        load: Σ compute ÷ workers.
        tightness: Σ bytes ÷ Σ budget.
        correlation: of the logarithms of demand and size.
        spread: standard deviation of those.
        budgets: of the workers, round and round, in GiB.
    """

    load: float = 0.9
    tightness: float = 0.97
    correlation: float = 0.0
    spread: float = 1.5
    budgets: tuple[int, ...] = (80,)


def catalogue(
    seed: int, models: int, workers: int, shape: Shape
) -> tuple[list[ModelDemand], list[WorkerRoom]]:
    """Models that every worker can take, and the workers."""
    rng = np.random.default_rng(seed)
    compute, size = rng.standard_normal((2, models)) * shape.spread
    size = shape.correlation * compute + np.sqrt(1.0 - shape.correlation**2) * size
    budgets = [shape.budgets[number % len(shape.budgets)] * GIB for number in range(workers)]
    compute = _scaled(np.exp(compute), shape.load * workers, 0.5)
    size = _scaled(np.exp(size), shape.tightness * sum(budgets), 0.5 * min(budgets))
    rooms = [WorkerRoom(f"w{number:04}", budget) for number, budget in enumerate(budgets)]
    names = tuple(room.name for room in rooms)
    return [
        ModelDemand(f"m{number:05}", float(compute[number]), int(size[number]), names)
        for number in range(models)
    ], rooms


def _scaled(
    values: np.ndarray[tuple[int], np.dtype[np.float64]], total: float, most: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Scaled to a sum, none above `most`."""
    for _ in range(100):
        values = np.minimum(values * (total / values.sum()), most)
    return values


def worst(plan: Plan) -> float:
    """The worst pressure."""
    return max((pressure.worst for pressure in plan.pressure.values()), default=0.0)


def over(models: Iterable[ModelDemand], workers: Sequence[WorkerRoom], homes: Homes) -> int:
    """Bytes over budget, of all workers together."""
    held = dict.fromkeys((room.name for room in workers), 0)
    for model in models:
        for home in homes.get(model.name, ()):
            held[home] += model.weight_bytes
    return sum(max(0, held[r.name] - r.weight_budget_bytes) for r in workers if r.weight_budget_bytes)


def loads(models: Iterable[ModelDemand], workers: Sequence[WorkerRoom], homes: Homes) -> dict[str, float]:
    """Compute share by worker."""
    found = dict.fromkeys((room.name for room in workers), 0.0)
    for model in models:
        for home in homes.get(model.name, ()):
            found[home] += model.compute / len(homes[model.name])
    return found


def all_homes(
    models: Sequence[ModelDemand], workers: Sequence[WorkerRoom]
) -> Iterable[Mapping[str, tuple[str, ...]]]:
    """Every placement that there is; for few models and workers."""
    names = {room.name for room in workers}
    choices = [list(_choices(model, names)) for model in models]
    for chosen in product(*choices):
        yield {model.name: homes for model, homes in zip(models, chosen, strict=True) if homes}


def _choices(model: ModelDemand, names: set[str]) -> Iterable[tuple[str, ...]]:
    eligible = [name for name in model.eligible if name in names]
    pinned = [name for name in model.pinned if name in names]
    count = len(eligible) if model.replicas is None else min(model.replicas, len(eligible))
    for homes in combinations(eligible, count):
        first = sum(name in pinned for name in homes)
        if first == min(count, len(pinned)):
            yield homes


@st.composite
def fleets(
    draw: st.DrawFn, *, models: int = 6, workers: int = 4, bounded: bool | None = None
) -> tuple[list[ModelDemand], list[WorkerRoom]]:
    """A few models on a few workers, with everything that may be odd about them."""
    count = draw(st.integers(1, workers))
    rooms = [
        WorkerRoom(f"w{number}", draw(st.integers(1, 12) if bounded else st.integers(0, 12)))
        for number in range(count)
    ]
    names = [room.name for room in rooms]
    found = []
    for number in range(draw(st.integers(1, models))):
        eligible = tuple(sorted(draw(st.sets(st.sampled_from(names)))))
        pinned = tuple(sorted(draw(st.sets(st.sampled_from(eligible))))) if eligible else ()
        found.append(
            ModelDemand(
                f"m{number}",
                draw(st.sampled_from([0.0, 1e-9, 0.01, 0.1, 0.25, 0.5, 0.9, 3.0])),
                draw(st.integers(0, 6)),
                eligible,
                pinned if draw(st.booleans()) else (),
                draw(st.sampled_from([1, 1, 1, 2, 3, None])),
            )
        )
    return found, rooms


@st.composite
def previous_homes(draw: st.DrawFn, models: Sequence[ModelDemand]) -> dict[str, tuple[str, ...]]:
    """Homes of before, not all of which still exist."""
    places = st.sets(st.sampled_from(["w0", "w1", "w2", "w3", "gone"]), max_size=3)
    homes = {model.name: tuple(sorted(draw(places))) for model in models}
    return {**{name: value for name, value in homes.items() if value}, "unloaded": ("w0",)}
