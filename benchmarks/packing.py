"""One trace on a node of four CPU workers and in the simulator, under round_robin and under lpt_packing."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.packing_node import BATCH_SIZES, Counters, Replay, node, write_models
from reactant_policy.simulate.catalogue import SimulatedModel
from reactant_policy.simulate.fleet import Fleet, by_name
from reactant_policy.simulate.policies import policy
from reactant_policy.simulate.result import Result
from reactant_policy.simulate.simulation import simulate
from reactant_policy.simulate.trace import Trace, Traffic, generate

WORKERS = 4
_COSTS = (9.0, 10.0, 10.5, 5.5, 6.0, 3.5, 4.5, 12.0, 11.5, 8.5, 9.5, 11.0)
MILLISECONDS: Mapping[str, float] = {f"m{index:02}": cost for index, cost in enumerate(_COSTS)}
"""What an execution of each model takes, on a core of its own."""

TRAFFIC = Traffic(requests_per_second=120.0, seconds=40.0, zipf=1.4, burst=8, seed=58)
"""With these costs its demand makes no toss-up of a placement: where every cost is up to 15 % off, 11 or 12
homes are still the same."""
REPACK_SECONDS = 18.0
"""When both are asked for the placement: by device time, the quicker one would see less of the traffic."""
WARM_UP_SECONDS = 20.0

PACKING: Mapping[str, str] = {"first_rebalance_compute_seconds": "1000"}
POLICIES: Mapping[str, str] = {
    "round_robin": "round_robin",
    "lpt_packing": ",".join(["lpt_packing", *(f"{key}={value}" for key, value in PACKING.items())]),
}
"""By mode, as the simulator names it."""


def missing() -> str | None:
    """What this benchmark lacks here."""
    return None if len(os.sched_getaffinity(0)) >= 2 else "it needs two CPU cores"


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows, one per mode and side. One round, whatever is asked for: it compares, and claims no speed."""
    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
    trace = generate(tuple(MILLISECONDS), TRAFFIC)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        write_models(scratch / "models", MILLISECONDS)
        for mode, text in POLICIES.items():
            with node(scratch / "models", scratch, WORKERS, _environment(mode)) as running:
                packs = mode == "lpt_packing"
                replay = running.replay(trace, WARM_UP_SECONDS, REPACK_SECONDS if packs else None)
                budget = running.weight_budget_bytes()
                homes = running.homes() if packs else {}
                overhead = running.overhead_seconds(next(iter(MILLISECONDS)))
            fleet = _fleet(replay, overhead, budget)
            simulated = simulate(
                trace, fleet, policy(text), warm_up_seconds=WARM_UP_SECONDS, repack_at=(REPACK_SECONDS,)
            )
            told = {model: result.homes for model, result in simulated.models.items() if result.homes}
            same = sum(told.get(model) == home for model, home in homes.items())
            agree = f"{same} of {len(MILLISECONDS)}" if homes else ""
            rows.append({"mode": mode, "side": "real", **_real(trace, replay), "same_home": agree})
            rows.append({"mode": mode, "side": "simulated", **_simulated(simulated), "same_home": agree})
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By side, what lpt_packing makes of round_robin's rows per execution and p50."""
    found = []
    for side in ("real", "simulated"):
        packed, robin = (
            next(row for row in rows if (row["mode"], row["side"]) == (mode, side))
            for mode in ("lpt_packing", "round_robin")
        )
        found.append(
            {
                "side": side,
                "rows_per_dispatch_ratio": round(packed["rows_per_dispatch"] / robin["rows_per_dispatch"], 2),
                "p50_ratio": round(packed["p50_ms"] / robin["p50_ms"], 2),
            }
        )
    return found


def _environment(mode: str) -> dict[str, str]:
    return {
        "INFERENCE_SERVER_SCHEDULER_DISCIPLINE": "fifo",
        "REACTANT_GATEWAY_SCHEDULING_MODE": mode,
        "REACTANT_GATEWAY_SCHEDULING_DEFAULT_REPLICAS": "1",
        **{f"REACTANT_GATEWAY_SCHEDULING_{key.upper()}": value for key, value in PACKING.items()},
    }


def _fleet(replay: Replay, overhead_seconds: float, weight_budget_bytes: int) -> Fleet:
    """The node as it was measured: what an execution of each model took, under this load on these cores."""
    seconds: Counter[str] = Counter()
    dispatches: Counter[str] = Counter()
    weights: dict[str, int] = {}
    for (_, model), counters in replay.after.items():
        seconds[model] += counters.totals.compute_seconds  # type: ignore[assignment]
        dispatches[model] += counters.dispatches
        weights[model] = counters.weight_bytes
    models = [
        SimulatedModel(name, seconds[name] / dispatches[name], 0.0, BATCH_SIZES, weights[name])
        for name in MILLISECONDS
        if dispatches[name]
    ]
    names = tuple(sorted({worker for worker, _ in replay.after}))
    return Fleet(names, by_name(models), weight_budget_bytes, overhead_seconds)


def _real(trace: Trace, replay: Replay) -> dict[str, Any]:
    spent: Mapping[tuple[str, str], Counters] = replay.spent()
    load: Counter[str] = Counter()
    for (worker, _), counters in spent.items():
        load[worker] += counters.totals.compute_seconds  # type: ignore[assignment]
    rows = sum(counters.totals.rows for counters in spent.values())
    dispatches = sum(counters.dispatches for counters in spent.values())
    return _row(
        replay.seconds[trace.times >= WARM_UP_SECONDS].tolist(),
        rows / dispatches,
        [seconds / (trace.seconds - WARM_UP_SECONDS) for seconds in load.values()],
    )


def _simulated(result: Result) -> dict[str, Any]:
    loads = [worker.utilization for worker in result.workers]
    return _row(result.latencies.tolist(), result.rows_per_dispatch, loads)


def _row(latencies: Sequence[float], rows_per_dispatch: float, loads: Sequence[float]) -> dict[str, Any]:
    p50, p90, p99 = np.percentile(latencies, (50, 90, 99)) * 1e3
    return {
        "requests": len(latencies),
        "p50_ms": round(float(p50), 2),
        "p90_ms": round(float(p90), 2),
        "p99_ms": round(float(p99), 2),
        "rows_per_dispatch": round(rows_per_dispatch, 2),
        "load": round(float(np.mean(loads)), 3),
        "busiest_over_mean": round(float(np.max(loads) / np.mean(loads)), 3),
    }
