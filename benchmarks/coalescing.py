"""What coalescing brings: two workers with the demo models, one of which runs every request alone."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import demo_models, h2load
from benchmarks.worker_process import WorkerProcess, worker

missing = demo_models.missing

CONCURRENCIES = (8, 32)
MODELS: Mapping[str, float] = {"digits": 1.0, "minilm": 0.05}
"""The models, and the share that each gets of the requests asked for."""

_ALONE = "global: {scheduler: {models: {digits: {max_batch_size: 1}, minilm: {max_batch_size: 1}}}}\n"
_WARM_UP_SHARE = 0.1


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows, one per round, model, concurrency and worker."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = options.models or folder / "models"
        bodies = {}
        for model in MODELS:
            if options.models is None:
                demo_models.build(models, model)
            bodies[model] = h2load.write_body(folder / model, demo_models.request(model))
        with _workers(models, folder, options.backend) as workers:
            for number in range(options.rounds):
                for model, share in MODELS.items():
                    requests = round(options.requests * share)
                    for concurrency in CONCURRENCIES:
                        # Whoever comes second finds another machine: they take turns.
                        for kind in list(workers) if number % 2 == 0 else list(workers)[::-1]:
                            measured = [
                                demo_models.measure(
                                    workers[kind],
                                    bodies[model],
                                    folder / "log",
                                    requests=max(concurrency, count),
                                    concurrency=concurrency,
                                )
                                for count in (round(requests * _WARM_UP_SHARE), requests)
                            ]
                            rows.append({"round": number, "model": model, "batches": kind, **measured[-1]})
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By model and concurrency: medians, and requests/s coalesced over requests/s alone, by round."""
    found = []
    for case in dict.fromkeys((row["model"], row["concurrency"]) for row in rows):
        rates: dict[str, list[float]] = {}
        for row in rows:
            if (row["model"], row["concurrency"]) == case:
                rates.setdefault(row["batches"], []).append(row["requests_per_second"])
        ratios = [x / y for x, y in zip(rates["coalesced"], rates["alone"], strict=True)]
        found.append(
            {
                "model": case[0],
                "concurrency": case[1],
                **{f"{kind}_per_second": round(statistics.median(rate), 1) for kind, rate in rates.items()},
                "ratios": " ".join(f"{ratio:.2f}" for ratio in ratios),
                "ratio": round(statistics.median(ratios), 2),
            }
        )
    return found


@contextmanager
def _workers(models: Path, folder: Path, backend: str) -> Iterator[dict[str, WorkerProcess]]:
    alone = folder / "alone.yaml"
    alone.write_text(_ALONE)
    environment = {
        "INFERENCE_SERVER_MODELS_INCLUDE": ":".join(MODELS),
        "INFERENCE_SERVER_RUNTIME_BACKEND": backend,
    }
    with ExitStack() as stack:
        yield {
            kind: stack.enter_context(worker(models, folder / "cache", "auto", environment | extra))
            for kind, extra in {"coalesced": {}, "alone": {"REACTANT_NODE_FILE": str(alone)}}.items()
        }
