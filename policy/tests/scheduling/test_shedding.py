from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.tests.scheduling.simulation import STEADY, Simulation

from reactant_policy.scheduling.disciplines import make_discipline
from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.scheduler import Decision, ModelTerms, Scheduler

COSTS = {1: 0.010, 8: 0.020, 32: 0.050}
CAPACITY = 32 / COSTS[32]


def edf(sizes: tuple[int, ...] = (1, 8, 32), models: str = "m") -> Scheduler:
    scheduler = Scheduler(make_discipline("edf"))
    for model in models:
        scheduler.add_model(model, ModelTerms(sizes, coalesces=True, max_batch_size=sizes[-1]))
        for size in sizes:
            scheduler.seed(model, None, size, COSTS[size])
    return scheduler


def fill(
    scheduler: Scheduler, *deadlines: float | None, model: str = "m", first: int = 0, rows: int = 1
) -> None:
    for number, deadline in enumerate(deadlines):
        scheduler.enqueue(model, Waiting(first + number, rows, None, 0.0, deadline))


def tickets(decision: Decision) -> list[int]:
    return [] if decision.dispatch is None else [r.ticket for r in decision.dispatch.requests]


def dropped(decision: Decision) -> list[int]:
    return sorted(request.ticket for _, request in decision.dropped)


def test_what_ends_exactly_at_its_deadline_runs_and_a_moment_less_is_too_little() -> None:
    for in_flight in (0.0, 0.5):
        scheduler = edf((1,))
        fill(scheduler, 1.0 + in_flight + COSTS[1])
        assert tickets(scheduler.next(1.0, in_flight)) == [0]
        fill(scheduler, 1.0 + in_flight + COSTS[1] - 1e-6, first=1)
        decision = scheduler.next(1.0, in_flight)
        assert tickets(decision) == []
        assert dropped(decision) == [1]
        assert decision.wait_until is None


def test_what_cannot_finish_is_given_up_wherever_it_waits() -> None:
    scheduler = edf(models="mn")
    fill(scheduler, *[None] * 100, 0.005, *[None] * 100)
    fill(scheduler, *[9.0] * 50, 0.005, model="n", first=500)
    assert dropped(scheduler.next(0.0)) == [100, 550]


def test_without_a_measured_cost_only_what_has_passed_is_given_up() -> None:
    scheduler = Scheduler(make_discipline("edf"))
    scheduler.add_model("m", ModelTerms((1,), coalesces=True, max_batch_size=1))
    fill(scheduler, 1e-6)
    assert tickets(scheduler.next(0.0)) == [0]


def test_committed_requests_are_given_up_only_when_their_deadline_has_passed() -> None:
    scheduler = edf()
    scheduler.enqueue("m", Waiting(0, 1, None, 0.0, deadline=0.001, committed=True))
    first = scheduler.next(0.0, in_flight_seconds=5.0)
    assert tickets(first) == [0]
    scheduler.enqueue("m", Waiting(2, 1, None, 0.0, deadline=0.001, committed=True))
    assert dropped(scheduler.next(0.001)) == [2]


def test_a_smaller_batch_saves_who_would_be_late_in_a_larger_one() -> None:
    scheduler = edf()
    fill(scheduler, *[0.045] * 8, *[9.0] * 24)
    first, second = scheduler.next(0.0), scheduler.next(0.0, COSTS[8])
    assert (tickets(first), dropped(first)) == (list(range(8)), [])
    assert (tickets(second), dropped(second)) == (list(range(8, 32)), [])


def test_timeouts_that_no_full_batch_can_meet_still_leave_smaller_ones() -> None:
    scheduler = edf()
    fill(scheduler, *[0.030] * 32)
    assert tickets(scheduler.next(0.0)) == list(range(8))


def test_in_a_crowd_the_oldest_are_given_up_for_full_batches() -> None:
    scheduler = edf()
    fill(scheduler, *[0.030 + 0.001 * n for n in range(300)])
    decision = scheduler.next(0.0)
    assert dropped(decision) == list(range(20))
    assert tickets(decision) == list(range(20, 52))


@pytest.mark.parametrize("others", [0, 100])
def test_a_crowd_may_wait_for_other_models(others: int) -> None:
    scheduler = edf(models="mn")
    fill(scheduler, 0.015, *[0.1] * 7)
    fill(scheduler, *[0.1] * others, model="n", first=100)
    assert dropped(scheduler.next(0.0)) == ([0] if others else [])


def test_a_request_over_the_bound_goes_alone_also_when_its_deadline_is_near() -> None:
    scheduler = Scheduler(make_discipline("edf"))
    scheduler.add_model("m", ModelTerms((8,), coalesces=True, max_batch_size=4))
    scheduler.seed("m", None, 8, COSTS[8])
    for _ in range(50):
        scheduler.delivered(0.1)
    fill(scheduler, 0.03, 0.03, rows=8)
    assert tickets(scheduler.next(0.0)) == [0]


def test_who_waits_behind_a_request_that_goes_alone_is_not_given_up_for_it() -> None:
    scheduler = edf((1,), models="n")
    scheduler.add_model("m", ModelTerms((8,), coalesces=True, max_batch_size=4))
    scheduler.seed("m", None, 8, COSTS[8])
    for _ in range(50):
        scheduler.delivered(0.1)
    fill(scheduler, 0.05, first=0)
    fill(scheduler, 0.9, first=1, rows=8)
    fill(scheduler, 0.05, first=2)
    fill(scheduler, *[0.9] * 100, model="n", first=100)
    decision = scheduler.next(0.0)
    assert dropped(decision) == [0]
    assert tickets(decision) == [1]


def test_only_those_before_a_batch_are_given_up_for_it() -> None:
    scheduler = edf()
    fill(scheduler, *[0.030] * 5, *[0.5] * 32, *[0.030] * 5, *[0.5] * 400)
    decision = scheduler.next(0.0)
    assert dropped(decision) == list(range(5))
    assert tickets(decision) == list(range(5, 37))


def test_nobody_is_given_up_who_only_stands_before_one_that_does_not_fit() -> None:
    scheduler = edf()
    fill(scheduler, 0.030)
    fill(scheduler, 0.5, first=1, rows=30)
    fill(scheduler, 0.030, first=2)
    fill(scheduler, *[0.5] * 100, first=3, rows=5)
    decision = scheduler.next(0.0)
    assert dropped(decision) == [0]
    assert tickets(decision) == [1]


def test_who_may_come_late_gives_way_to_another_model_in_a_crowd() -> None:
    scheduler = edf((1,), "mn")
    for _ in range(50):
        scheduler.delivered(0.1)
    fill(scheduler, 0.05)
    fill(scheduler, 0.05, *[0.2] * 30, model="n", first=1)
    decision = scheduler.next(0.0)
    assert dropped(decision) == [0, 1]
    assert tickets(decision) == [2]


def test_rows_that_fit_only_a_large_size_are_late_by_that_size() -> None:
    scheduler = edf()
    fill(scheduler, 0.045, rows=32)
    fill(scheduler, 0.045, first=1)
    decision = scheduler.next(0.0)
    assert dropped(decision) == [0]
    assert tickets(decision) == [1]


def test_other_variants_behind_the_head_are_left_alone() -> None:
    scheduler = edf()
    scheduler.seed("m", 1, 1, 5.0)
    scheduler.enqueue("m", Waiting(0, 1, 1, 0.0, deadline=4.0))
    scheduler.enqueue("m", Waiting(1, 1, None, 0.0, deadline=4.0))
    decision = scheduler.next(0.0)
    assert dropped(decision) == [0]
    assert tickets(decision) == [1]


def test_when_the_most_urgent_is_given_up_the_next_most_urgent_model_runs() -> None:
    scheduler = edf(models="mn")
    scheduler.seed("m", None, 1, 0.001)  # the least of "m", but its only request needs 32 rows
    fill(scheduler, 0.020, model="m", rows=32)
    fill(scheduler, 0.030, model="n", first=1)
    fill(scheduler, 9.0, model="m", first=2)
    decision = scheduler.next(0.0)
    assert dropped(decision) == [0]
    assert decision.dispatch is not None
    assert decision.dispatch.model == "n"


@contextmanager
def overload(
    load: float,
    timeout: float = 0.2,
    *,
    discipline: str = "edf",
    jitter: float = 0.0,
    depth: int = 1,
    models: int = 1,
) -> Iterator[Simulation]:
    """Four seconds of `load` times the capacity at even random intervals, bounded queues as in a worker."""
    noise = random.Random(4)
    simulation = Simulation(
        Scheduler(make_discipline(discipline)),
        lambda _, size: COSTS[size] * noise.uniform(1 - jitter, 1 + jitter),
        depth,
    )
    names = [f"m{number}" for number in range(models)]
    for name in names:
        simulation.add(name, tuple(COSTS))

    def arrive() -> None:
        name = noise.choice(names)
        if simulation.scheduler.depth(name) < 1024:
            simulation.arrive(name, timeout=timeout)
        simulation.at(simulation.now + noise.expovariate(load * CAPACITY), arrive)

    simulation.at(0.0, arrive)
    simulation.run(4.0)
    yield simulation


def goodput(simulation: Simulation) -> float:
    """Answers within their deadlines, as a part of what the device can do."""
    ended = [(x.end, r) for x in simulation.executed if x.start >= 0.5 for r in x.dispatch.requests]
    return sum(1 for end, r in ended if r.deadline is not None and end <= r.deadline) / 3.5 / CAPACITY


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("jitter", [0.0, 0.2])
@pytest.mark.parametrize("load", [1.2, 5.0])
def test_overload_costs_no_goodput_and_every_answer_or_refusal_comes_in_time(
    load: float, jitter: float, depth: int
) -> None:
    with overload(load, jitter=jitter, depth=depth) as simulation:
        assert goodput(simulation) > 0.9
        refused = [at - request.arrived for at, _, request in simulation.dropped]
        answered = [x.end - r.arrived for x in simulation.executed for r in x.dispatch.requests]
        assert max(refused) <= 0.2
        assert max(answered) < 0.25
        assert sum(1 for seconds in answered if seconds > 0.2) < 0.02 * len(answered)
        executed = {r.ticket for x in simulation.executed for r in x.dispatch.requests}
        assert not executed & {request.ticket for _, _, request in simulation.dropped}


def test_overload_spread_over_models_costs_no_goodput() -> None:
    with overload(5.0, jitter=0.1, depth=2, models=5) as simulation:
        assert goodput(simulation) > 0.9


def test_below_capacity_nothing_is_given_up() -> None:
    with overload(0.8, jitter=0.1, depth=2) as simulation:
        assert simulation.dropped == []
        assert goodput(simulation) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("discipline", ["fair", "fifo"])
def test_without_prediction_an_overloaded_device_works_for_nothing(discipline: str) -> None:
    """Why `edf` predicts: others run each request just before its deadline, and it ends just after."""
    with overload(5.0, discipline=discipline) as simulation:
        assert goodput(simulation) < 0.1


def test_answers_that_take_long_to_arrive_are_begun_sooner() -> None:
    scheduler = edf((1,))
    for _ in range(50):
        scheduler.delivered(0.1)
    fill(scheduler, *[0.1] * 20, *[0.2] * 20)
    decision = scheduler.next(0.0)
    assert tickets(decision) == [20]
    assert dropped(decision) == list(range(20))


@STEADY
@given(
    st.lists(st.tuples(st.sampled_from("mnp"), st.floats(0, 1)), min_size=1, max_size=20), st.floats(0, 0.5)
)
def test_however_late_answers_come_the_device_is_not_idle_while_a_request_could_finish(
    requests: list[tuple[str, float]], in_flight: float
) -> None:
    scheduler = edf((1,), "mnp")
    for _ in range(50):
        scheduler.delivered(10.0)
    for ticket, (model, deadline) in enumerate(requests):
        fill(scheduler, deadline, model=model, first=ticket)
    could = any(deadline >= in_flight + COSTS[1] for _, deadline in requests)
    assert (scheduler.next(0.0, in_flight).dispatch is not None) == could


def test_however_late_answers_come_whoever_has_half_of_the_time_left_is_tried() -> None:
    scheduler = edf((1,))
    fill(scheduler, 1e6, first=1000)
    scheduler.next(0.0)  # gone, and with it so much time
    for _ in range(50):
        scheduler.delivered(10.0)
    fill(scheduler, *[0.009 * n for n in range(1, 101)])  # 0.9 s for 1 s of work
    decision = scheduler.next(0.0)
    assert dropped(decision) == list(range(51))
    assert tickets(decision) == [51]


def test_a_margin_is_no_reason_to_refuse_a_request_when_the_device_is_free() -> None:
    scheduler = edf((1,))
    for _ in range(50):
        scheduler.delivered(0.1)
    fill(scheduler, 0.05)
    assert tickets(scheduler.next(0.0)) == [0]
