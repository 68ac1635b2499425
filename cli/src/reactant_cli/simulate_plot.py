"""Draws results of simulations with matplotlib, which is an extra: without it only `--plot` is missing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from reactant_cli.failure import USAGE, CommandFailure
from reactant_cli.simulate_shown import short_labels
from reactant_policy.simulate.result import PERCENTILES, Result

_SUFFIXES: Final = (".svg", ".png")
_MOST_BARS: Final = 32


def check_plot(path: Path | None) -> None:
    """CommandFailure when `write_plot` could not draw there, before anything was computed for it."""
    if path is None:
        return
    if path.suffix.lower() not in _SUFFIXES:
        raise CommandFailure(
            f"--plot is {path.name}; accepted are names with {' or '.join(_SUFFIXES)}", USAGE
        )
    if not path.parent.is_dir():
        raise CommandFailure(f"--plot: there is no folder {path.parent}", USAGE)
    if find_spec("matplotlib") is None:
        raise CommandFailure("--plot needs matplotlib: pip install 'reactant-cli[plot]'")


def write_plot(path: Path, results: Sequence[Result]) -> None:
    """Draws the load of each worker and the latency of requests by percentile, one colour a policy."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same results give the same file.
    with mpl.rc_context({"svg.hashsalt": "reactant", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 4.5), layout="constrained")
        load, latency = figure.subplots(1, 2)
        count = len(results[0].workers)
        for number, (label, result) in enumerate(zip(short_labels(results), results, strict=True)):
            shares = np.array([worker.utilization for worker in result.workers]) * 100
            if count <= _MOST_BARS:
                width = 0.8 / len(results)
                load.bar(np.arange(count) + (number - (len(results) - 1) / 2) * width, shares, width)
            else:
                load.plot(np.sort(shares)[::-1])
            if len(result.latencies):
                percents = np.linspace(0, 100, 401)
                latency.plot(percents, np.percentile(result.latencies, percents) * 1e3, label=label)
        if count <= _MOST_BARS:
            load.set_xticks(range(count), [worker.name for worker in result.workers], rotation=45, ha="right")
        else:
            load.set_xlabel("workers, busiest first")
        load.set_ylim(bottom=0)
        load.set_ylabel("device busy, %")
        load.set_title("Load of each worker")
        latency.set_yscale("log")
        latency.yaxis.set_major_formatter("{x:g}")
        latency.yaxis.set_minor_formatter("{x:g}")
        latency.set_xticks([0, 25, *PERCENTILES])
        latency.set_xlabel("percentile of requests")
        latency.set_ylabel("latency, ms")
        latency.set_title("Latency")
        latency.grid(visible=True, alpha=0.3)
        latency.legend()
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise CommandFailure(f"{path} cannot be written: {error.strerror}") from None
