"""What is counted while a simulation runs, and the result that it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

import numpy as np
from numpy.typing import NDArray

from reactant_policy.simulate.fleet import Fleet
from reactant_policy.simulate.result import (
    ModelResult,
    RepackResult,
    Result,
    WorkerResult,
    latency_of,
)
from reactant_policy.simulate.trace import Trace
from reactant_policy.simulate.worker import Execution


@final
@dataclass(slots=True)
class _Work:
    dispatches: int = 0
    rows: int = 0
    seconds: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        self.dispatches += 1
        self.rows += rows
        self.seconds += seconds


@final
class Tally:
    """Latencies of all requests, and the work of each worker and model after the warm-up.

    Attributes:
        outstanding: requests that arrived and have neither an answer nor been given up.
    """

    def __init__(self, trace: Trace, fleet: Fleet, warm_up: float) -> None:
        self.outstanding = 0
        self._trace = trace
        self._warm_up = warm_up
        self._timeout = fleet.timeout_seconds
        # An answer is a number, one that was given up stays infinite, and none may be had twice.
        self._latency: NDArray[np.float64] = np.full(len(trace), np.nan)
        self._workers = {name: _Work() for name in fleet.workers}
        self._models: dict[str, _Work] = {}
        self._ran: dict[str, set[str]] = {name: set() for name in fleet.workers}

    def answered(self, ticket: int, now: float) -> None:
        """A request got its answer, too late or in time; RuntimeError when it was settled before."""
        seconds = now - self._trace.times[ticket]
        self._settle(ticket, seconds if seconds <= self._timeout else np.inf)

    def given_up(self, ticket: int) -> None:
        """A request gets no answer; RuntimeError when it was settled before."""
        self._settle(ticket, np.inf)

    def executed(self, worker: str, execution: Execution) -> None:
        """A device is done with an execution."""
        dispatch = execution.dispatch
        until = min(execution.end, self._trace.seconds)
        seconds = until - max(execution.start, self._warm_up)
        if execution.start < self._warm_up:
            # Its rows arrived before what is looked at; the part of its time that lies within counts.
            self._workers[worker].seconds += max(0.0, seconds)
            return
        self._workers[worker].add(dispatch.rows, max(0.0, seconds))
        self._models.setdefault(dispatch.model, _Work()).add(dispatch.rows, execution.end - execution.start)
        self._ran[worker].add(dispatch.model)

    def result(
        self, policy: str, homes: Mapping[str, tuple[str, ...]], repacks: Sequence[RepackResult]
    ) -> Result:
        """The result once nothing is outstanding; RuntimeError when a request was never settled."""
        trace = self._trace
        if np.isnan(self._latency).any():
            raise RuntimeError(f"{int(np.isnan(self._latency).sum())} requests were never settled")
        seconds = trace.seconds - self._warm_up
        counted = trace.times >= self._warm_up
        answered = counted & np.isfinite(self._latency)
        return Result(
            policy=policy,
            seconds=seconds,
            arrivals=len(trace),
            given_up=int((counted & ~answered).sum()),
            latency=latency_of(self._latency[answered]),
            workers=tuple(
                WorkerResult(name, work.seconds / seconds, work.dispatches, work.rows, len(self._ran[name]))
                for name, work in self._workers.items()
            ),
            models=MappingProxyType(self._by_model(counted, answered, homes)),
            repacks=tuple(repacks),
            latencies=np.sort(self._latency[answered]),
        )

    def _by_model(
        self, counted: NDArray[np.bool_], answered: NDArray[np.bool_], homes: Mapping[str, tuple[str, ...]]
    ) -> dict[str, ModelResult]:
        trace = self._trace
        order = np.argsort(trace.which, kind="stable")
        # Where each model's requests begin in that order.
        bounds = np.searchsorted(trace.which[order], np.arange(len(trace.models) + 1))
        found: dict[str, ModelResult] = {}
        for number in sorted(range(len(trace.models)), key=trace.models.__getitem__):
            mine = order[bounds[number] : bounds[number + 1]]
            requests = int(counted[mine].sum())
            if not requests:
                continue
            name = trace.models[number]
            latency = latency_of(self._latency[mine][answered[mine]])
            work = self._models.get(name, _Work())
            found[name] = ModelResult(
                name,
                latency,
                requests - latency.answered,
                work.dispatches,
                work.rows,
                work.seconds,
                homes.get(name, ()),
            )
        return found

    def _settle(self, ticket: int, seconds: float) -> None:
        if not np.isnan(self._latency[ticket]):
            raise RuntimeError(f"request {ticket} was settled twice")
        self._latency[ticket] = seconds
        self.outstanding -= 1
