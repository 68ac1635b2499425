"""A catalogue and a fleet as arrays: what the search works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from reactant_policy.placement.model import ModelDemand, WorkerRoom

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.intp]
Bools: TypeAlias = NDArray[np.bool_]

T = TypeVar("T")

IDLE_SHARE: Final = 1e-4
"""A replica with less than this part of the mean compute of a worker counts as idle."""


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """Models and workers in the order of their names; nothing here changes once built.

    Matrices are workers x models, so that a worker's models lie side by side.

    Attributes:
        models: those that some worker can take.
        workers: all of them.
        compute: device-seconds per second of one replica, by model.
        bytes: weights of one replica, by model.
        budget: bytes by worker; infinite where unconstrained.
        per_budget: 1 ÷ budget; 0 where unconstrained.
        chosen: replicas whose worker is to be chosen, by model.
        open: where those may go.
        fixed: homes that nobody chooses: every eligible worker, or every pinned one.
        choices: the workers of a column of `open`, by model.
        mean_compute: device-seconds per second of a worker, were all of them even.
        idle: models whose demand decides nothing, by model.
        homeless: names of models that no worker can take.
        short: models that want more replicas than workers can take them, with both numbers.
    """

    models: tuple[ModelDemand, ...]
    workers: tuple[WorkerRoom, ...]
    compute: Floats
    bytes: Floats
    budget: Floats
    per_budget: Floats
    chosen: Ints
    open: Bools
    fixed: Bools
    choices: tuple[Ints, ...]
    mean_compute: float
    idle: Bools
    homeless: tuple[str, ...]
    short: tuple[tuple[str, int, int], ...]


def state_problem(models: Sequence[ModelDemand], workers: Sequence[WorkerRoom]) -> Problem:
    """The arrays for these models and workers, in any order; ValueError for two of one name.

    Eligible and pinned workers that are not among `workers` count as absent.
    """
    rooms = _by_name(workers, "worker", lambda worker: worker.name)
    index = {worker.name: number for number, worker in enumerate(rooms)}
    placeable: list[ModelDemand] = []
    homeless: list[str] = []
    short: list[tuple[str, int, int]] = []
    known: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[Ints, Ints]] = {}
    chosen: list[int] = []
    wanted: list[int] = []
    choices: list[Ints] = []
    kept: list[Ints] = []
    for model in _by_name(models, "model", lambda model: model.name):
        key = (model.eligible, model.pinned)
        found = known.get(key)
        if found is None:
            found = known[key] = _candidates(model, index)
        pinned, others = found
        count = pinned.size + others.size
        if not count:
            homeless.append(model.name)
            continue
        replicas = count if model.replicas is None else model.replicas
        if replicas > count:
            short.append((model.name, replicas, count))
            replicas = count
        free, certain = (pinned, _NONE) if replicas < pinned.size else (others, pinned)
        remaining = replicas - certain.size
        if remaining == free.size:
            free, certain, remaining = _NONE, np.concatenate((certain, free)), 0
        placeable.append(model)
        wanted.append(replicas)
        chosen.append(remaining)
        choices.append(free if remaining else _NONE)
        kept.append(certain)
    asked = np.array([model.compute for model in placeable], dtype=np.float64)
    compute = asked / np.array(wanted, dtype=np.float64)
    mean_compute = float(asked.sum()) / max(len(rooms), 1)
    budget = np.array([room.weight_budget_bytes or np.inf for room in rooms], dtype=np.float64)
    return Problem(
        models=tuple(placeable),
        workers=tuple(rooms),
        compute=compute,
        bytes=np.array([model.weight_bytes for model in placeable], dtype=np.float64),
        budget=budget,
        per_budget=1.0 / budget,
        chosen=np.array(chosen, dtype=np.intp),
        open=_matrix(choices, len(rooms)),
        fixed=_matrix(kept, len(rooms)),
        choices=tuple(choices),
        mean_compute=mean_compute,
        idle=compute <= IDLE_SHARE * mean_compute,
        homeless=tuple(homeless),
        short=tuple(short),
    )


def previous_homes(problem: Problem, homes: Mapping[str, tuple[str, ...]]) -> Bools:
    """`homes` as a matrix, without workers that are gone."""
    index = {worker.name: number for number, worker in enumerate(problem.workers)}
    known: dict[tuple[str, ...], Ints] = {(): _NONE}
    found: list[Ints] = []
    for model in problem.models:
        names = homes.get(model.name, ())
        if names not in known:
            known[names] = np.array([index[name] for name in names if name in index], dtype=np.intp)
        found.append(known[names])
    return _matrix(found, len(problem.workers))


_NONE: Final[Ints] = np.array([], dtype=np.intp)


def _by_name(values: Sequence[T], kind: str, name: Callable[[T], str]) -> list[T]:
    ordered = sorted(values, key=name)
    for before, after in pairwise(ordered):
        if name(before) == name(after):
            raise ValueError(f"two {kind}s are named {name(after)}")
    return ordered


def _candidates(model: ModelDemand, index: Mapping[str, int]) -> tuple[Ints, Ints]:
    """The pinned workers of a model and its other eligible ones."""
    eligible = {index[name] for name in model.eligible if name in index}
    pinned = {index[name] for name in model.pinned if name in index} & eligible
    return (
        np.array(sorted(pinned), dtype=np.intp),
        np.array(sorted(eligible - pinned), dtype=np.intp),
    )


def _matrix(columns: Sequence[Ints], rows: int) -> Bools:
    made = np.zeros((rows, len(columns)), dtype=np.bool_)
    if columns:
        numbers = np.repeat(np.arange(len(columns)), [column.size for column in columns])
        made[np.concatenate(columns), numbers] = True
    return made
