"""`reactant simulate`: how would this traffic fare under this policy on so many workers?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from reactant_cli.failure import USAGE, CommandFailure, one_line_failures
from reactant_cli.options import AsJson, show_json
from reactant_cli.simulate_files import CATALOGUE_COLUMNS, TRACE_COLUMNS, read_catalogue, read_trace
from reactant_cli.simulate_plot import check_plot, write_plot
from reactant_cli.simulate_shown import document, show_results
from reactant_policy.simulate.catalogue import SimulatedModel, generated_catalogue
from reactant_policy.simulate.fleet import Fleet, by_name
from reactant_policy.simulate.policies import SETTINGS, Policy, policy
from reactant_policy.simulate.result import Result
from reactant_policy.simulate.simulation import simulate as simulate_policy
from reactant_policy.simulate.trace import Trace, Traffic, generate, shares
from reactant_policy.simulate.worker import worker_names

_MIB = 2**20

_POLICY_HELP = (
    "What to compare; repeat it. MODE is round_robin, least_outstanding or lpt_packing, DISCIPLINE that of "
    f"the workers: fifo (default), edf or fair. Keys: {', '.join(SETTINGS)}. "
    "Example: lpt_packing+edf,replicas=2. Default: each mode once."
)


@one_line_failures
def simulate(
    trace: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TRACE]",
            help="File of arrivals, CSV with a header or a JSON object a line, in any order: "
            f"{TRACE_COLUMNS}. Without it traffic is generated.",
        ),
    ] = None,
    *,
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", metavar="MODE[+DISCIPLINE][,KEY=VALUE…]", help=_POLICY_HELP),
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(
            "--catalogue",
            metavar="FILE",
            help=f"Models and what an execution costs, CSV or JSON as TRACE: {CATALOGUE_COLUMNS}. An "
            "execution takes fixed_ms + per_item_ms x its padded batch. TRACE needs it; otherwise --models "
            "are made up.",
        ),
    ] = None,
    models: Annotated[
        int, typer.Option("--models", metavar="N", min=1, help="How many models to make up.")
    ] = 12,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, help="Equal workers, a device each.")
    ] = 4,
    load: Annotated[
        float,
        typer.Option(
            "--load",
            metavar="SHARE",
            min=0.001,
            help="Traffic to make: device time that it would take if every request ran alone, as a share of "
            "what all workers have. Batches take less, so that more than 1 can be served.",
        ),
    ] = 0.8,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", metavar="NUMBER", min=0.001, help="Requests per second to make, instead of --load."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="SECONDS", min=0.1, help="How much traffic to make.")
    ] = 120.0,
    zipf: Annotated[
        float,
        typer.Option(
            "--zipf",
            metavar="NUMBER",
            min=0.0,
            help="Skew: the k-th most popular model gets 1/k^ZIPF of the traffic; 0: even.",
        ),
    ] = 1.0,
    items: Annotated[
        str, typer.Option("--items", metavar="N|MIN-MAX", help="Items of a request, evenly between two.")
    ] = "1",
    burst: Annotated[
        int,
        typer.Option("--burst", metavar="N", min=1, help="Requests for one model that come at once."),
    ] = 1,
    shift: Annotated[
        list[float] | None,
        typer.Option("--shift", metavar="SECONDS", help="Other models become popular then; repeat it."),
    ] = None,
    repack_at: Annotated[
        list[float] | None,
        typer.Option(
            "--repack-at", metavar="SECONDS", help="An operator asks for a placement then; repeat it."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Of what is made up; same seed, same result.")
    ] = 0,
    warm_up: Annotated[
        float | None,
        typer.Option(
            "--warm-up", metavar="SECONDS", help="Not in the figures. Default: half of the traffic."
        ),
    ] = None,
    weight_budget_mib: Annotated[
        float,
        typer.Option(
            "--weight-budget-mib",
            metavar="MIB",
            min=0.0,
            help="Room for weights on each device; 0: no limit.",
        ),
    ] = 0.0,
    timeout_ms: Annotated[
        float | None,
        typer.Option(
            "--timeout-ms", metavar="MS", min=0.001, help="Deadline of each request. Default: none."
        ),
    ] = None,
    overhead_ms: Annotated[
        float,
        typer.Option(
            "--overhead-ms", metavar="MS", min=0.0, help="Of a request outside of queues and devices."
        ),
    ] = 0.0,
    probe_seconds: Annotated[
        float,
        typer.Option(
            "--probe-seconds", metavar="SECONDS", min=0.01, help="Between two looks at the workers' counters."
        ),
    ] = 1.0,
    planning_ms: Annotated[
        float,
        typer.Option(
            "--planning-ms", metavar="MS", min=0.0, help="From a decision to repack until it is in force."
        ),
    ] = 100.0,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw load and latency: .svg or .png; needs matplotlib."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replays traffic in virtual time through the server's own routing, placement and scheduling code.

    Shows for each policy how long requests take, how full batches get, and how even the load is. Nothing is
    contacted: it runs on this machine alone.

    What it leaves out: the time of the network and of the gateway (--overhead-ms stands for it), moving
    weights (a repack counts the bytes, not the time), failures, admission limits, and workers that differ.
    """
    check_plot(plot)
    try:
        chosen = [policy(text) for text in policies or ("round_robin", "least_outstanding", "lpt_packing")]
        served = _catalogue(catalogue, models, seed, needed=trace is not None)
        fleet = Fleet(
            tuple(worker_names(workers)),
            served,
            weight_budget_bytes=int(weight_budget_mib * _MIB),
            overhead_seconds=overhead_ms / 1e3,
            timeout_seconds=inf if timeout_ms is None else timeout_ms / 1e3,
            probe_seconds=probe_seconds,
            planning_seconds=planning_ms / 1e3,
        )
        if trace is not None:
            arrivals = read_trace(trace)
        else:
            low, high = _items(items)
            each = rate or load * workers / _mean_seconds(served, zipf, seed, (low + high) / 2)
            shifts = tuple(shift or ())
            arrivals = generate(tuple(served), Traffic(each, seconds, zipf, (low, high), burst, shifts, seed))
        half = arrivals.seconds / 2
        results, took = _run(arrivals, fleet, chosen, half if warm_up is None else warm_up, repack_at or ())
    except ValueError as error:
        raise CommandFailure(str(error), USAGE) from None
    if as_json:
        show_json(
            [
                document(result) | {"took_seconds": round(spent, 3)}
                for result, spent in zip(results, took, strict=True)
            ]
        )
    else:
        show_results(results, took)
    if plot is not None:
        write_plot(plot, results)


def _run(
    arrivals: Trace, fleet: Fleet, policies: list[Policy], warm_up: float, repack_at: Sequence[float]
) -> tuple[list[Result], list[float]]:
    results, took = [], []
    for one in policies:
        begin = time.perf_counter()
        results.append(simulate_policy(arrivals, fleet, one, warm_up_seconds=warm_up, repack_at=repack_at))
        took.append(time.perf_counter() - begin)
    return results, took


def _catalogue(file: Path | None, models: int, seed: int, *, needed: bool) -> Mapping[str, SimulatedModel]:
    if file is not None:
        return read_catalogue(file)
    if needed:
        raise CommandFailure(
            f"a trace needs --catalogue, a file that says what its models cost: {CATALOGUE_COLUMNS}", USAGE
        )
    return by_name(generated_catalogue(models, seed))


def _items(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    if not low.isascii() or not low.isdigit() or (dash and not (high.isascii() and high.isdigit())):
        raise ValueError(f"--items is '{text}'; accepted is a number, as 4, or two, as 1-8")
    return int(low), int(high or low)


def _mean_seconds(models: Mapping[str, SimulatedModel], zipf: float, seed: int, items: float) -> float:
    """Device time of a request that runs alone, unpadded, over the models as they are popular at first."""
    costs = [model.fixed_seconds + model.seconds_per_item * items for model in models.values()]
    return float(np.dot(shares(len(models), zipf, seed), costs))
