"""Waiting for a fuller batch: `max_queue_delay_seconds`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.tests.scheduling.simulation import STEADY, Simulation

from reactant_policy.scheduling.disciplines import DISCIPLINE_NAMES, make_discipline
from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.scheduler import Decision, ModelTerms, Scheduler

COSTS = {1: 0.010, 4: 0.011, 8: 0.012}


def scheduler_with(
    delay: float = 1.0, *, discipline: str = "fifo", costs: dict[int, float] = COSTS
) -> Scheduler:
    scheduler = Scheduler(make_discipline(discipline))
    scheduler.add_model("m", ModelTerms(tuple(costs), True, max(costs), max_queue_delay_seconds=delay))
    for size, seconds in costs.items():
        scheduler.seed("m", None, size, seconds)
    return scheduler


def arrive(
    scheduler: Scheduler,
    ticket: int,
    at: float,
    *,
    model: str = "m",
    rows: int = 1,
    variant: int | None = None,
    deadline: float | None = None,
    committed: bool = False,
) -> None:
    scheduler.enqueue(model, Waiting(ticket, rows, variant, at, deadline, committed))


def size_of(decision: Decision) -> int:
    return 0 if decision.dispatch is None else len(decision.dispatch.requests)


@pytest.mark.parametrize("discipline", DISCIPLINE_NAMES)
def test_a_batch_waits_until_it_is_full_or_its_oldest_has_waited_long_enough(discipline: str) -> None:
    scheduler = scheduler_with(discipline=discipline)
    for ticket in range(7):
        arrive(scheduler, ticket, 0.1 * ticket)
        assert scheduler.next(0.1 * ticket) == Decision(None, wait_until=1.0)
    arrive(scheduler, 7, 0.7)
    assert size_of(scheduler.next(0.7)) == 8
    arrive(scheduler, 8, 2.0)
    assert scheduler.next(2.999) == Decision(None, wait_until=3.0)
    assert size_of(scheduler.next(3.0)) == 1


def test_without_a_delay_nothing_waits() -> None:
    scheduler = scheduler_with(0.0)
    arrive(scheduler, 0, 0.0)
    assert size_of(scheduler.next(0.0)) == 1


def test_a_batch_waits_only_for_the_size_that_is_worth_it() -> None:
    scheduler = scheduler_with(costs={1: 0.010, 4: 0.011, 8: 0.1})
    # Until that is sure, a size is not taken to be worse than smaller ones.
    for _ in range(3):
        scheduler.seed("m", None, 8, 0.1)
    for ticket in range(4):
        arrive(scheduler, ticket, 0.0)
    assert size_of(scheduler.next(0.0)) == 4


@pytest.mark.parametrize(("variant", "rows"), [(1, 1), (None, 8)])
def test_a_batch_that_nobody_can_join_does_not_wait(variant: int | None, rows: int) -> None:
    scheduler = scheduler_with()
    arrive(scheduler, 0, 0.0)
    arrive(scheduler, 1, 0.0, variant=variant, rows=rows)
    assert size_of(scheduler.next(0.0)) == 1


def test_a_model_that_does_not_coalesce_does_not_wait() -> None:
    scheduler = Scheduler(make_discipline("fifo"))
    scheduler.add_model("m", ModelTerms((8,), False, 8, max_queue_delay_seconds=1.0))
    arrive(scheduler, 0, 0.0)
    assert size_of(scheduler.next(0.0)) == 1


@pytest.mark.parametrize("discipline", DISCIPLINE_NAMES)
def test_a_deadline_ends_the_waiting_while_a_full_batch_can_still_meet_it(discipline: str) -> None:
    scheduler = scheduler_with(discipline=discipline)
    arrive(scheduler, 0, 0.0)
    arrive(scheduler, 1, 0.0, deadline=0.5)
    assert scheduler.next(0.0).wait_until == pytest.approx(0.5 - COSTS[8])
    assert scheduler.next(0.0, in_flight_seconds=0.3).wait_until == pytest.approx(0.2 - COSTS[8])
    assert size_of(scheduler.next(0.5 - COSTS[8])) == 2


def test_committed_requests_do_not_wait() -> None:
    scheduler = scheduler_with()
    arrive(scheduler, 0, 0.0)
    arrive(scheduler, 1, 0.0, committed=True)
    assert size_of(scheduler.next(0.0)) == 2


@pytest.mark.parametrize("discipline", DISCIPLINE_NAMES)
def test_who_waits_does_not_hold_up_others(discipline: str) -> None:
    scheduler = scheduler_with(discipline=discipline)
    scheduler.add_model("slow", ModelTerms((1, 8), True, 8, max_queue_delay_seconds=0.5))
    scheduler.add_model("ready", ModelTerms((1, 8), True, 8))
    arrive(scheduler, 0, 0.0)
    arrive(scheduler, 1, 0.0, model="slow")
    arrive(scheduler, 2, 0.1, model="ready")
    decision = scheduler.next(0.1)
    assert decision.dispatch is not None
    assert decision.dispatch.model == "ready"
    assert scheduler.next(0.1) == Decision(None, wait_until=0.5)


@STEADY
@given(
    st.lists(st.floats(0, 2), min_size=1, max_size=40),
    st.floats(0.001, 0.5),
    st.one_of(st.none(), st.floats(0.05, 0.6)),
    st.sampled_from(DISCIPLINE_NAMES),
)
def test_nobody_waits_longer_than_the_delay_on_an_idle_device(
    times: list[float], delay: float, timeout: float | None, discipline: str
) -> None:
    simulation = Simulation(Scheduler(make_discipline(discipline)), lambda _, size: COSTS[size])
    simulation.add("m", tuple(COSTS), delay=delay)

    def come() -> None:
        simulation.arrive("m", timeout=timeout)

    for time in times:
        simulation.at(time, come)
    simulation.run(10.0)
    assert simulation.dropped == []
    free = 0.0
    for one in simulation.executed:
        head = one.dispatch.requests[0]
        assert one.start <= max(head.arrived + delay, free) + 1e-9
        assert all(r.deadline is None or one.end <= r.deadline + 1e-9 for r in one.dispatch.requests)
        free = one.end
    assert sum(len(one.dispatch.requests) for one in simulation.executed) == len(times)
