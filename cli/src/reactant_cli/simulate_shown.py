"""Results of simulations as tables and as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.table import Table

from reactant_cli.options import show
from reactant_policy.simulate.result import Latency, ModelResult, Result

_MOST_WORKERS = 16
"""More than these are shown by quantiles."""

_MOST_MODELS = 10

_QUANTILES = {"least": 0, "a tenth is below": 10, "half is below": 50, "a tenth is above": 90, "most": 100}


def show_results(results: Sequence[Result], took: Sequence[float]) -> None:
    """Prints what operators compare; `took` is the real time of each, seconds."""
    first = results[0]
    show(
        f"{first.arrivals} requests to {len(first.workers)} workers; figures of the last "
        f"{first.seconds:.4g} s of traffic, {first.latency.answered + first.given_up} requests"
    )
    show(_policies(results, took))
    show(_workers(results))
    show(_models(results))
    for label, result in zip(short_labels(results), results, strict=True):
        if result.repacks:
            show(_repacks(label, result))


def document(result: Result) -> dict[str, Any]:
    """A result as JSON has it; times in seconds, NaN as null."""
    return {
        "policy": result.policy,
        "seconds": result.seconds,
        "arrivals": result.arrivals,
        "given_up": result.given_up,
        "latency": _latency(result.latency),
        "dispatches": result.dispatches,
        "rows_per_dispatch": result.rows_per_dispatch,
        "utilization": result.utilization,
        "imbalance": result.imbalance,
        "bytes_moved": result.bytes_moved,
        "workers": [asdict(worker) for worker in result.workers],
        "models": {name: _model(model) for name, model in result.models.items()},
        "repacks": [asdict(repack) for repack in result.repacks],
    }


def short_labels(results: Sequence[Result]) -> Sequence[str]:
    """Labels without settings, where these tell the policies apart."""
    short = [result.policy.partition(",")[0] for result in results]
    return short if len(set(short)) == len(short) else [result.policy for result in results]


def _policies(results: Sequence[Result], took: Sequence[float]) -> Table:
    table = _table(
        "policy", "p50 ms", "p90 ms", "p99 ms", "given up", "rows/run", "load", "busiest/mean",
        "repacks", "moved", "took s",
    )  # fmt: skip
    for result, spent in zip(results, took, strict=True):
        latency = result.latency
        table.add_row(
            result.policy,
            *(_milliseconds(value) for value in (latency.p50, latency.p90, latency.p99)),
            str(result.given_up),
            f"{result.rows_per_dispatch:.2f}",
            f"{result.utilization:.1%}",
            f"{result.imbalance:.2f}",
            str(len(result.repacks)),
            _size(result.bytes_moved),
            f"{spent:.1f}",
        )
    return table


def _workers(results: Sequence[Result]) -> Table:
    table = _table("load of a worker", *short_labels(results))
    loads = [[worker.utilization for worker in result.workers] for result in results]
    if len(loads[0]) <= _MOST_WORKERS:
        for index, worker in enumerate(results[0].workers):
            table.add_row(worker.name, *(f"{load[index]:.1%}" for load in loads))
        return table
    for name, percentile in _QUANTILES.items():
        table.add_row(name, *(f"{np.percentile(load, percentile):.1%}" for load in loads))
    return table


def _models(results: Sequence[Result]) -> Table:
    first = results[0].models
    busiest = sorted(first.values(), key=lambda model: (-_requests(model), model.name))[:_MOST_MODELS]
    table = _table(
        f"model ({len(busiest)} of {len(first)})" if len(busiest) < len(first) else "model",
        "requests",
        *(f"{label}: p50 ms, rows/run" for label in short_labels(results)),
    )
    for model in busiest:
        mine = [result.models[model.name] for result in results]
        table.add_row(
            model.name,
            str(_requests(model)),
            *(f"{_milliseconds(one.latency.p50)}, {one.rows_per_dispatch:.2f}" for one in mine),
        )
    return table


def _repacks(label: str, result: Result) -> Table:
    table = _table(f"repack ({label})", "why", "placed", "moved", "held", "bytes", "busiest/mean expected")
    for repack in result.repacks:
        table.add_row(
            f"{repack.at:.1f} s",
            repack.trigger,
            str(repack.placed),
            str(repack.moved),
            str(repack.held),
            _size(repack.bytes_moved),
            f"{repack.imbalance_before:.2f}, then {repack.imbalance_after:.2f}",
        )
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(show_edge=False, title_justify="left")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _requests(model: ModelResult) -> int:
    return model.latency.answered + model.given_up


def _latency(latency: Latency) -> dict[str, Any]:
    return {name: None if math.isnan(value) else value for name, value in asdict(latency).items()}


def _model(model: ModelResult) -> Mapping[str, Any]:
    plain = asdict(model) | {"latency": _latency(model.latency)}
    return plain | {"rows_per_dispatch": model.rows_per_dispatch}


def _milliseconds(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{seconds * 1e3:.4g}"


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count else ""
