"""What came of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

PERCENTILES = (50, 90, 99)
"""Those that are told of latencies."""


@final
@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from a request's arrival at the gateway to its answer; NaN without any answer.

    Attributes:
        answered: requests it is about.
        mean: of them.
        p50, p90, p99: percentiles, interpolated linearly.
    """

    answered: int
    mean: float
    p50: float
    p90: float
    p99: float


@final
@dataclass(frozen=True, slots=True)
class WorkerResult:
    """One worker in the time looked at.

    Attributes:
        name: the worker.
        utilization: share of that time in which its device was busy.
        dispatches: executions.
        rows: items in them, without padding.
        models: how many models it ran.
    """

    name: str
    utilization: float
    dispatches: int
    rows: int
    models: int

    @property
    def rows_per_dispatch(self) -> float:
        """0 without a dispatch."""
        return _ratio(self.rows, self.dispatches)


@final
@dataclass(frozen=True, slots=True)
class ModelResult:
    """One model in the time looked at.

    Attributes:
        name: the model.
        latency: of its requests.
        given_up: requests whose deadline passed, or could not be met any more.
        dispatches: executions.
        rows: items in them, without padding.
        compute_seconds: device time of all workers together.
        homes: workers that it is placed on in the end; empty where it was never placed.
    """

    name: str
    latency: Latency
    given_up: int
    dispatches: int
    rows: int
    compute_seconds: float
    homes: tuple[str, ...]

    @property
    def rows_per_dispatch(self) -> float:
        """0 without a dispatch."""
        return _ratio(self.rows, self.dispatches)


@final
@dataclass(frozen=True, slots=True)
class RepackResult:
    """One repack, of the whole simulation.

    Attributes:
        at: when it was decided, seconds.
        trigger: why.
        placed: models with a home.
        moved: models whose homes changed.
        held: models that hysteresis kept where they were.
        bytes_moved: weights that workers had to fetch for it.
        imbalance_before, imbalance_after: worst pressure over the mean, as the plan expects it.
    """

    at: float
    trigger: str
    placed: int
    moved: int
    held: int
    bytes_moved: int
    imbalance_before: float
    imbalance_after: float


@final
@dataclass(frozen=True, slots=True)
class Result:
    """One policy on one trace: all but `arrivals` and `repacks` is about the time after the warm-up.

    Attributes:
        policy: its label.
        seconds: length of the time looked at, until the last arrival.
        arrivals: requests of the whole trace.
        given_up: requests that got no answer in time.
        latency: of all requests.
        workers: in the order of their names.
        models: by name, those that were asked for.
        repacks: in order of time.
        latencies: float64 [answered], seconds, ascending.
    """

    policy: str
    seconds: float
    arrivals: int
    given_up: int
    latency: Latency
    workers: tuple[WorkerResult, ...]
    models: Mapping[str, ModelResult]
    repacks: tuple[RepackResult, ...]
    latencies: NDArray[np.float64]

    @property
    def dispatches(self) -> int:
        """Executions on all workers."""
        return sum(worker.dispatches for worker in self.workers)

    @property
    def rows_per_dispatch(self) -> float:
        """Mean items of an execution; 0 without one."""
        return _ratio(sum(worker.rows for worker in self.workers), self.dispatches)

    @property
    def utilization(self) -> float:
        """Mean over the workers."""
        return _ratio(sum(worker.utilization for worker in self.workers), len(self.workers))

    @property
    def imbalance(self) -> float:
        """Utilization of the busiest worker over the mean; 1 is even, 0 stands for no work at all."""
        return _ratio(max(worker.utilization for worker in self.workers), self.utilization)

    @property
    def bytes_moved(self) -> int:
        """By all repacks."""
        return sum(repack.bytes_moved for repack in self.repacks)


def latency_of(seconds: NDArray[np.float64]) -> Latency:
    """Of latencies [n] in any order."""
    if not len(seconds):
        return Latency(0, np.nan, np.nan, np.nan, np.nan)
    p50, p90, p99 = (float(value) for value in np.percentile(seconds, PERCENTILES))
    return Latency(len(seconds), float(seconds.mean()), p50, p90, p99)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
