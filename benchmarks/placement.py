"""What a placement is worth and what it costs: 10,000 models on 100 workers, and 200 small random cases."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from policy.tests.placement.catalogue import Shape, catalogue, worst
from policy.tests.placement.test_lower_bound import random_case

from reactant_policy.placement.engine import lower_bound, plan
from reactant_policy.placement.model import NO_HOMES, Homes, Knobs, ModelDemand, Plan, WorkerRoom
from reactant_policy.placement.pack import plain_lpt
from reactant_policy.placement.problem import state_problem

MODELS, WORKERS, CASES = 10_000, 100, 200
SHAPES: Mapping[str, Shape] = {
    "both short": Shape(load=0.97),
    "opposed": Shape(load=0.97, correlation=-0.8),
    "memory short": Shape(load=0.3),
    "few large": Shape(load=0.97, tightness=0.98, spread=2.5),
    "two sizes of worker": Shape(load=0.97, budgets=(40, 80)),
}
"""No share is above half of one worker, and memory is tight, in all of them."""


def missing() -> str | None:
    """It needs nothing."""
    return None


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows, one per round, catalogue and change: a new placement, new demand, a worker lost, one joined."""
    rows = []
    for number in range(options.rounds):
        for name, shape in SHAPES.items():
            models, workers = catalogue(number, MODELS, WORKERS, shape)
            plain = plain_lpt(state_problem(models, workers)).worst
            homes: Homes = NO_HOMES
            for change, asked, able in _changes(models, workers, number):
                made, seconds, cpu = _timed(asked, able, homes)
                bound = lower_bound(asked, able)
                homes = made.homes
                rows.append(
                    {
                        "round": number,
                        "catalogue": name,
                        "change": change,
                        "seconds": round(seconds, 3),
                        "cpu_seconds": round(cpu, 3),
                        "to_bound": round(worst(made) / bound, 4),
                        "plain_lpt_to_bound": round(plain / bound, 4) if change == "new" else "",
                        "moved": len(made.moves),
                        "imbalance": round(made.imbalance_after, 3),
                        "over_budget": sum("budget" in line for line in made.warnings),
                    }
                )
    rows += _small_cases()
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Medians of the times, the worst of everything else, by catalogue and change."""
    found = []
    for case in dict.fromkeys((row["catalogue"], row["change"]) for row in rows):
        chosen = [row for row in rows if (row["catalogue"], row["change"]) == case]
        found.append(
            {
                "catalogue": case[0],
                "change": case[1],
                "seconds": round(statistics.median(row["seconds"] for row in chosen), 3),
                "cpu_seconds": round(statistics.median(row["cpu_seconds"] for row in chosen), 3),
                "worst_to_bound": max(row["to_bound"] for row in chosen),
                "most_moved": max(row["moved"] for row in chosen),
                "worst_imbalance": max(row["imbalance"] for row in chosen),
            }
        )
    return found


def _changes(
    models: list[ModelDemand], workers: list[WorkerRoom], seed: int
) -> list[tuple[str, list[ModelDemand], list[WorkerRoom]]]:
    factors = np.random.default_rng(seed).lognormal(0.0, 0.5, len(models))
    other = [replace(m, compute=float(m.compute * f)) for m, f in zip(models, factors, strict=True)]
    return [
        ("new", models, workers),
        ("again", models, workers),
        ("demand", other, workers),
        ("worker lost", other, workers[1:]),
        ("worker joined", other, workers),
    ]


def _timed(
    models: Sequence[ModelDemand], workers: Sequence[WorkerRoom], homes: Homes
) -> tuple[Plan, float, float]:
    begun, cpu = time.perf_counter(), time.process_time()
    made = plan(models, workers, homes, Knobs())
    return made, time.perf_counter() - begun, time.process_time() - cpu


def _small_cases() -> list[dict[str, Any]]:
    """One row: in how many of the random cases a placement has a higher worst pressure than plain LPT."""
    worse, ratios = 0, []
    begun, cpu = time.perf_counter(), time.process_time()
    for seed in range(CASES):
        models, workers = random_case(seed)
        plain = plain_lpt(state_problem(models, workers))
        made = worst(plan(models, workers, NO_HOMES, Knobs()))
        # One that goes over a budget is no measure for one that does not.
        if not plain.over.any():
            worse += made > plain.worst * (1 + 1e-12)
            ratios.append(made / plain.worst)
    if worse:
        raise SystemExit(f"placement: worse than plain LPT in {worse} of {len(ratios)} cases")
    return [
        {
            "round": 0,
            "catalogue": f"{len(ratios)} of {CASES} random cases, to plain LPT",
            "change": "new",
            "seconds": round((time.perf_counter() - begun) / CASES, 4),
            "cpu_seconds": round((time.process_time() - cpu) / CASES, 4),
            "to_bound": round(max(ratios), 4),
            "plain_lpt_to_bound": "",
            "moved": 0,
            "imbalance": 0.0,
            "over_budget": 0,
        }
    ]
