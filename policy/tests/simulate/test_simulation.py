from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactant_policy.simulate.catalogue import SimulatedModel, sizes_up_to
from reactant_policy.simulate.fleet import Fleet, by_name
from reactant_policy.simulate.policies import policy
from reactant_policy.simulate.result import Result
from reactant_policy.simulate.simulation import simulate
from reactant_policy.simulate.trace import Trace, Traffic, generate, recorded
from reactant_policy.simulate.worker import worker_names

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=40)
LONGER, CLOSE = (20, 0.02) if os.environ.get("REACTANT_TEST_FULL") == "1" else (1, 0.04)
"""How long the queues of known formulas are watched, and how near they are: 6,000 requests scatter by 5 %, of
which the seed takes little."""

POLICIES = (
    "round_robin",
    "round_robin+fair",
    "round_robin,coalesce=off",
    "least_outstanding",
    "least_outstanding+edf,work_basis=items",
    "lpt_packing,first_rebalance_compute_seconds=0.02,rebalance_compute_seconds=0.05",
    "lpt_packing+edf,replicas=2,fill_mode=spread,first_rebalance_compute_seconds=0.02",
    "lpt_packing,replicas=all,fill_mode=inflight,routing_policy=fill_rr,work_basis=items",
)


def fleet(workers: int, *models: SimulatedModel, timeout: float = inf, overhead: float = 0.0) -> Fleet:
    return Fleet(
        tuple(worker_names(workers)),
        by_name(models),
        timeout_seconds=timeout,
        overhead_seconds=overhead,
        probe_seconds=0.05,
        planning_seconds=0.01,
    )


def plain(result: Result) -> object:
    """All of a result but its label, to compare."""
    values = dataclasses.asdict(dataclasses.replace(result, models={}))
    return values | {"policy": "", "models": dict(result.models), "latencies": result.latencies.tolist()}


@st.composite
def _traces(draw: st.DrawFn) -> tuple[Trace, Sequence[SimulatedModel]]:
    models = [
        SimulatedModel(
            name,
            draw(st.sampled_from([0.0005, 0.004, 0.020])),
            draw(st.sampled_from([0.0, 0.001])),
            sizes_up_to(draw(st.sampled_from([1, 4, 6]))),
        )
        for name in ("a", "b", "c")
    ]
    arrival = st.tuples(st.integers(0, 400), st.integers(0, 2), st.integers(1, 6))
    arrivals = [
        (time / 1e3, models[number].name, min(items, models[number].max_batch_size))
        for time, number, items in draw(st.lists(arrival, min_size=2, max_size=60))
    ]
    # A trace takes time.
    return recorded([*arrivals, (0.5, "a", 1)]), models


@STEADY
@given(_traces(), st.integers(1, 4), st.sampled_from(POLICIES), st.sampled_from([inf, 0.015]), st.booleans())
def test_every_arrival_is_settled_once_and_every_row_runs_once(
    case: tuple[Trace, Sequence[SimulatedModel]], workers: int, text: str, timeout: float, late: bool
) -> None:
    trace, models = case
    result = simulate(
        trace, fleet(workers, *models, timeout=timeout, overhead=0.002 if late else 0.0), policy(text)
    )
    # Settling one twice or never raises; so what is left is to count.
    assert result.latency.answered + result.given_up == len(trace) == result.arrivals
    assert sum(m.latency.answered + m.given_up for m in result.models.values()) == len(trace)
    rows = sum(worker.rows for worker in result.workers)
    assert rows == sum(model.rows for model in result.models.values())
    if timeout == inf:
        assert result.given_up == 0
        assert rows == trace.items.sum()
    else:
        assert rows <= trace.items.sum()
        assert (result.latencies <= timeout).all()
    for model in models:
        ran = result.models.get(model.name)
        if ran is not None and ran.dispatches:
            least = ran.dispatches * model.fixed_seconds + ran.rows * model.seconds_per_item
            assert ran.compute_seconds >= least * (1 - 1e-9)
    # Nothing is quicker than an execution of its own.
    quickest = min(model.seconds(1) for model in models)
    assert not len(result.latencies) or result.latencies[0] >= quickest * (1 - 1e-9)


@pytest.mark.parametrize("text", POLICIES)
def test_the_same_arguments_give_the_same_result(text: str) -> None:
    models = [SimulatedModel(name, 0.003, 0.001, sizes_up_to(8)) for name in "abcd"]
    trace = generate("abcd", Traffic(300.0, 2.0, items=(1, 3), seed=11))
    results = [
        plain(simulate(trace, fleet(3, *some), policy(text), warm_up_seconds=0.5))
        for some in (models, models, models[::-1])
    ]
    assert results[0] == results[1] == results[2]


def test_round_robin_gives_every_worker_as_many_requests() -> None:
    models = [SimulatedModel(name, 0.001, 0.0) for name in "abc"]
    trace = generate("abc", Traffic(200.0, 3.0, zipf=1.0, seed=2))
    result = simulate(trace, fleet(4, *models), policy("round_robin"))
    rows = [worker.rows for worker in result.workers]
    # Each of the three models has one request more on some workers than on others.
    assert max(rows) - min(rows) <= 3
    assert sum(rows) == len(trace)


def test_least_outstanding_passes_over_a_worker_that_is_busy() -> None:
    # One after the other, so that the turn comes to the busy one while the three others are idle.
    trace = recorded([(0.0, "long", 1), *((0.2 * n, "a", 1) for n in range(1, 7)), (2.0, "a", 1)])
    models = SimulatedModel("a", 0.1, 0.0), SimulatedModel("long", 1.5, 0.0)
    result = simulate(trace, fleet(4, *models), policy("least_outstanding,work_basis=requests"))
    assert result.latencies.tolist() == pytest.approx([0.1] * 7 + [1.5])


def test_what_arrives_while_the_device_is_busy_shares_the_next_execution() -> None:
    model = SimulatedModel("a", 0.100, 0.001, sizes_up_to(8))
    trace = recorded([(0.0, "a", 1), *((0.01 * n, "a", 1) for n in range(1, 6)), (1.0, "a", 1)])
    result = simulate(trace, fleet(1, model), policy("round_robin"))
    assert result.dispatches == 3
    assert result.rows_per_dispatch == pytest.approx(7 / 3)
    # Five rows are padded to a batch of eight.
    assert result.models["a"].compute_seconds == pytest.approx(0.101 + 0.108 + 0.101)
    alone = simulate(trace, fleet(1, model), policy("round_robin,coalesce=off"))
    assert alone.dispatches == 7


def test_what_cannot_be_answered_in_time_is_given_up() -> None:
    trace = recorded([(0.0, "a", 1), (0.001, "a", 1), (0.002, "a", 1), (1.0, "a", 1)])
    result = simulate(trace, fleet(1, SimulatedModel("a", 0.1, 0.0), timeout=0.15), policy("round_robin"))
    # The first is on time, the second would be at 0.2 s and runs for nobody, the third never runs.
    assert (result.latency.answered, result.given_up, result.dispatches) == (2, 2, 3)


def test_overhead_counts_and_does_not_occupy_the_device() -> None:
    trace = recorded([(0.0, "a", 1), (0.0, "a", 1), (1.0, "a", 1)])
    model = SimulatedModel("a", 0.1, 0.0)
    result = simulate(trace, fleet(1, model, overhead=0.02), policy("round_robin"))
    assert result.latencies.tolist() == pytest.approx([0.12, 0.12, 0.22])


def test_the_warm_up_is_not_in_the_figures() -> None:
    trace = recorded([(0.0, "a", 1), (0.05, "a", 1), (0.95, "a", 1), (1.5, "a", 1), (2.0, "a", 1)])
    model = SimulatedModel("a", 0.1, 0.0)
    result = simulate(trace, fleet(1, model), policy("round_robin"), warm_up_seconds=1.0)
    assert result.latency.answered == 2
    assert result.dispatches == 2
    # Of the device: 0.05 s left of what began before, all of the fourth, and nothing after the last arrival.
    assert result.utilization == pytest.approx(0.15)
    assert result.seconds == 1.0


@pytest.mark.parametrize(
    ("arrivals", "warm_up", "message"),
    [
        ([(0.0, "x", 1), (1.0, "a", 1)], 0.0, "no model 'x'; it has a"),
        ([(0.0, "a", 5), (1.0, "a", 1)], 0.0, "model 'a' is asked for 1 to 5 items; accepted are 1 to 4"),
        ([(0.0, "a", 1), (1.0, "a", 1)], 1.0, "the warm-up takes 1 s of a trace of 1 s"),
        ([(0.0, "a", 1)], 0.0, "a trace of 0 s"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    arrivals: list[tuple[float, str, int]], warm_up: float, message: str
) -> None:
    model = SimulatedModel("a", 0.1, 0.0, sizes_up_to(4))
    with pytest.raises(ValueError, match=message):
        simulate(recorded(arrivals), fleet(1, model), policy("round_robin"), warm_up_seconds=warm_up)


def _wait(trace: Trace, *models: SimulatedModel) -> float:
    """Mean seconds between arrival and start, one worker that runs requests alone in their order."""
    result = simulate(trace, fleet(1, *models), policy("round_robin+fifo,coalesce=off"))
    named = {model.name: model.seconds(1) for model in models}
    service = np.array([named[model] for model in trace.models])[trace.which]
    return result.latency.mean - float(service.mean())


@pytest.mark.slow
@pytest.mark.parametrize("utilization", [0.3, 0.6])
def test_one_model_waits_as_in_an_m_d_1_queue(utilization: float) -> None:
    """Mean wait of M/D/1: rho s / (2 (1 - rho)); Pollaczek 1930, Khinchine 1932."""
    service = 0.010
    trace = generate("a", Traffic(utilization / service, 60.0 * LONGER / utilization, seed=4))
    expected = utilization * service / (2 * (1 - utilization))
    assert _wait(trace, SimulatedModel("a", service, 0.0)) == pytest.approx(expected, rel=CLOSE)


@pytest.mark.slow
def test_two_models_wait_as_in_an_m_g_1_queue() -> None:
    """Mean wait of M/G/1: lambda E[S^2] / (2 (1 - rho)), the formula of Pollaczek and Khinchine."""
    rate, services = 60.0, {"a": 0.002, "b": 0.018}
    trace = generate(tuple(services), Traffic(rate, 100.0 * LONGER, zipf=0.0, seed=4))
    utilization = rate * sum(services.values()) / 2
    expected = rate * sum(s**2 for s in services.values()) / 2 / (2 * (1 - utilization))
    wait = _wait(trace, *(SimulatedModel(name, seconds, 0.0) for name, seconds in services.items()))
    assert wait == pytest.approx(expected, rel=CLOSE)
