"""Runs the benchmarks this machine allows; writes raw rows and prints them as a table."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import coalescing, demo_models, gateway, packing, placement, worker

RESULTS = Path(__file__).resolve().parent / "results"


@final
@dataclass(frozen=True, slots=True)
class Benchmark:
    """What can be run: `missing` says what it lacks here, `run` gives rows, `summary` condenses them."""

    missing: Callable[[], str | None]
    run: Callable[[argparse.Namespace], list[dict[str, Any]]]
    summary: Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]] | None = None


BENCHMARKS: Mapping[str, Benchmark] = {
    **{
        model: Benchmark(demo_models.missing, partial(demo_models.run, model))
        for model in ("digits", "minilm")
    },
    "coalescing": Benchmark(coalescing.missing, coalescing.run, coalescing.summary),
    "gateway": Benchmark(gateway.missing, gateway.run, gateway.summary),
    "packing": Benchmark(packing.missing, packing.run, packing.summary),
    "placement": Benchmark(placement.missing, placement.run, placement.summary),
    "worker": Benchmark(worker.missing, worker.run, worker.summary),
}


def main(arguments: Sequence[str]) -> int:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which ones ({', '.join(BENCHMARKS)}); all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000, help="per round")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--backend", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--models", type=Path, help="a folder of demo bundles; built when not given")
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    results: dict[str, Any] = {}
    summaries: dict[str, Any] = {}
    for name in options.names or BENCHMARKS:
        lacking = BENCHMARKS[name].missing()
        if lacking:
            print(f"{name}: skipped, {lacking}")
            continue
        benchmark = BENCHMARKS[name]
        results[name] = benchmark.run(options)
        print_table(name, results[name])
        if benchmark.summary is not None:
            summaries[name] = benchmark.summary(results[name])
            print_table(f"{name}, medians", summaries[name])
    if results and not options.no_write:
        RESULTS.mkdir(exist_ok=True)
        # Runs of one day that measured different things lie side by side.
        path = RESULTS / f"{'-'.join((dt.date.today().isoformat(), *options.names))}.json"
        document = {"machine": machine(), "results": results, "summary": summaries}
        path.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written: {path.relative_to(RESULTS.parent.parent)}")
    return 0


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "arguments": sys.argv[1:],
    }


def print_table(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows under their column names, right-aligned."""
    print(f"\n{name}")
    columns = list(rows[0])
    widths = [max(len(column), *(len(str(row[column])) for row in rows)) for column in columns]
    for line in (columns, *([str(row[column]) for column in columns] for row in rows)):
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
