"""A placement in the making."""

from __future__ import annotations

from typing import final

import numpy as np

from reactant_policy.placement.problem import Bools, Floats, Ints, Problem


@final
class Layout:
    """Which model lies on which worker, and what that adds up to.

    Attributes:
        problem: what is placed.
        on: chosen homes, workers x models; those of `problem.fixed` are not among them.
        compute: device-seconds per second, by worker.
        bytes: weights, by worker. Sums of whole numbers below 2**53, so exact in any order.
    """

    __slots__ = ("bytes", "compute", "on", "problem")

    def __init__(self, problem: Problem, on: Bools) -> None:
        self.problem = problem
        self.on = on
        self.compute: Floats
        self.bytes: Floats
        self.add_up()

    def add_up(self) -> None:
        """Sums up anew: many small changes leave rounding errors behind."""
        workers, models = np.nonzero(self.homes)
        count = len(self.problem.workers)
        self.compute = np.bincount(workers, self.problem.compute[models], count).astype(np.float64)
        self.bytes = np.bincount(workers, self.problem.bytes[models], count).astype(np.float64)

    def copy(self) -> Layout:
        """One that changes on its own."""
        return Layout(self.problem, self.on.copy())

    @property
    def homes(self) -> Bools:
        """All homes, workers x models."""
        return self.on | self.problem.fixed

    @property
    def pressure(self) -> Floats:
        """max(compute share, memory share), by worker."""
        return np.maximum(self.compute, self.bytes * self.problem.per_budget)

    @property
    def worst(self) -> float:
        """The largest pressure; 0 without workers."""
        return float(self.pressure.max(initial=0.0))

    @property
    def over(self) -> Floats:
        """Bytes beyond the budget, by worker."""
        return np.maximum(self.bytes - self.problem.budget, 0.0)

    def missing(self) -> Ints:
        """Replicas that have no worker yet, by model."""
        missing: Ints = self.problem.chosen - self.on.sum(axis=0)
        return missing

    def put(self, model: int, worker: int) -> None:
        """Gives a model one more home."""
        self.on[worker, model] = True
        self.compute[worker] += self.problem.compute[model]
        self.bytes[worker] += self.problem.bytes[model]

    def take(self, model: int, worker: int) -> None:
        """Takes a home from a model."""
        self.on[worker, model] = False
        self.compute[worker] -= self.problem.compute[model]
        self.bytes[worker] -= self.problem.bytes[model]

    def move(self, model: int, gone: int, new: int) -> None:
        """Gives a model another home."""
        self.take(model, gone)
        self.put(model, new)
