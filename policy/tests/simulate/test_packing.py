from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from reactant_policy.simulate.catalogue import SimulatedModel, sizes_up_to
from reactant_policy.simulate.fleet import Fleet, by_name
from reactant_policy.simulate.policies import policy
from reactant_policy.simulate.result import Result
from reactant_policy.simulate.simulation import simulate
from reactant_policy.simulate.trace import Traffic, generate
from reactant_policy.simulate.worker import worker_names

NAMES = tuple("abcdefghijkl")
MODELS = [
    SimulatedModel(name, 0.002 + 0.0003 * number, 0.0001, sizes_up_to(16), 2**20)
    for number, name in enumerate(NAMES)
]
SOON = "first_rebalance_compute_seconds=0.5,rebalance_compute_seconds=1.5,demand_halflife_compute_seconds=1.5"


def run(
    text: str,
    *,
    models: Sequence[SimulatedModel] = MODELS,
    seconds: float = 8.0,
    shifts: tuple[float, ...] = (),
    warm_up: float = 0.0,
    budget: int = 0,
    workers: int = 4,
) -> Result:
    names = tuple(model.name for model in models)
    trace = generate(names, Traffic(300.0, seconds, burst=6, shifts=shifts, seed=9))
    fleet = Fleet(
        tuple(worker_names(workers)), by_name(models), budget, probe_seconds=0.2, planning_seconds=0.05
    )
    return simulate(trace, fleet, policy(text), warm_up_seconds=warm_up)


@pytest.mark.slow
def test_each_model_has_one_home_and_its_requests_go_there() -> None:
    result = run(f"lpt_packing,{SOON}", warm_up=4.0)
    assert [len(model.homes) for model in result.models.values()] == [1] * 12
    assert [repack.trigger for repack in result.repacks][:2] == ["start", "first"]
    assert result.repacks[0].at == 0.0
    assert all(repack.placed == 12 for repack in result.repacks)
    # Nothing moved since the warm-up: the homes of the end are those of all that was looked at.
    assert not [repack for repack in result.repacks if repack.moved and repack.at > 3.9]
    homes = {name: model.homes for name, model in result.models.items()}
    for worker in result.workers:
        assert worker.models == sum((worker.name,) == home for home in homes.values())
        assert worker.rows == sum(m.rows for m in result.models.values() if m.homes == (worker.name,))


@pytest.mark.slow
def test_packing_fills_batches_that_round_robin_takes_apart() -> None:
    robin, packed = (run(text, warm_up=4.0) for text in ("round_robin", f"lpt_packing,{SOON}"))
    assert packed.latency.answered == robin.latency.answered
    assert packed.rows_per_dispatch > 2 * robin.rows_per_dispatch
    assert packed.utilization < 0.6 * robin.utilization


@pytest.mark.slow
def test_when_other_models_become_popular_some_move() -> None:
    result = run(f"lpt_packing,hysteresis=0.05,{SOON}", seconds=16.0, shifts=(6.0,))
    later = [repack for repack in result.repacks if repack.at > 6.0 and repack.moved]
    assert later
    assert all(repack.bytes_moved == repack.moved * 2**20 for repack in later)
    assert result.bytes_moved == sum(repack.bytes_moved for repack in result.repacks)
    assert later[0].imbalance_after < later[0].imbalance_before


@pytest.mark.parametrize("mode", ["run", "spread"])
def test_two_replicas_of_a_model_share_it_evenly(mode: str) -> None:
    model = SimulatedModel("hot", 0.002, 0.0, sizes_up_to(4))
    result = run(f"lpt_packing,replicas=2,fill_mode={mode},{SOON}", models=[model], seconds=4.0)
    assert len(result.models["hot"].homes) == 2
    rows = [worker.rows for worker in result.workers if worker.rows]
    assert len(rows) == 2
    # `run` gives four items to one, then four to the other; `spread` looks at what is in flight alone.
    assert max(rows) - min(rows) <= (0.05 * sum(rows))


def test_weights_that_fit_are_never_put_where_they_do_not() -> None:
    result = run(f"lpt_packing,{SOON}", seconds=2.0, budget=3 * 2**20)
    homes = [model.homes[0] for model in result.models.values()]
    assert max(homes.count(worker.name) for worker in result.workers) == 3


def test_a_placement_that_someone_asks_for_comes_with_the_next_look() -> None:
    names = tuple(model.name for model in MODELS)
    trace = generate(names, Traffic(100.0, 2.0, seed=9))
    fleet = Fleet(tuple(worker_names(4)), by_name(MODELS), probe_seconds=0.2)
    result = simulate(trace, fleet, policy("lpt_packing"), repack_at=(1.1,))
    assert [(repack.at, repack.trigger) for repack in result.repacks] == [
        (0.0, "start"),
        (pytest.approx(1.2), "request"),
    ]
    robin = simulate(trace, fleet, policy("round_robin"), repack_at=(1.1,))
    assert not robin.repacks


def test_a_fleet_without_counters_to_see_is_placed_once() -> None:
    result = run("lpt_packing", seconds=1.0)
    assert [(repack.trigger, repack.moved) for repack in result.repacks] == [("start", 0)]
    assert result.given_up == 0
    assert result.latency.p99 < inf
