from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_policy.pipeline import (
    LEAD_SECONDS,
    LEAD_SHARE,
    STALL_FACTOR,
    STALL_SECONDS,
    InFlight,
    overdue_seconds,
    overlaps,
)

seconds = st.floats(0.0, 100.0)


def test_what_an_execution_took_does_not_count_the_one_before_it() -> None:
    device = InFlight(2)
    first = device.add(0.0, 1.0)
    first.ready = 0.5
    second = device.add(0.6, 1.0)
    second.ready = 0.7
    turn = device.done(first, 2.5)
    assert (turn.waited, turn.seconds, turn.end) == (0.0, 2.0, 2.5)
    turn = device.done(second, 3.5)
    assert turn.waited == pytest.approx(1.8)
    assert turn.seconds == 1.0
    third = device.add(9.0, 1.0)
    turn = device.done(third, 9.25)
    assert (turn.waited, turn.seconds) == (0.0, 0.25)


@given(st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=20))
def test_device_times_add_up_to_the_time_it_was_busy(steps: list[tuple[float, float, float]]) -> None:
    """Each step: idle for a while, then two executions, the second ready while the first runs."""
    device, now, busy, counted = InFlight(2), 0.0, 0.0, 0.0
    for idle, one, other in steps:
        now += idle
        first, second = device.add(now, None), device.add(now, None)
        counted += device.done(first, now + one).seconds
        counted += device.done(second, now + one + other).seconds
        now += one + other
        busy += one + other
    assert counted == pytest.approx(busy)


def test_what_is_left_is_the_cost_less_what_has_run() -> None:
    device = InFlight(3)
    assert device.left(0.0) == 0.0
    first = device.add(0.0, 2.0)
    device.add(0.0, None)
    last = device.add(0.0, 3.0)
    assert device.left(0.5) == pytest.approx(4.5)
    # The first is late: nothing of it is left, but the others have not begun.
    assert device.left(9.0) == pytest.approx(3.0)
    device.done(first, 9.0)
    device.withdraw(last)
    assert device.left(9.0) == 0.0
    assert len(device) == 1


def test_the_next_is_chosen_shortly_before_its_turn() -> None:
    device = InFlight(2)
    assert device.next_at(7.0) == 7.0
    first = device.add(7.0, 10.0)
    assert device.next_at(7.0) == pytest.approx(17.0 - LEAD_SHARE * 10.0)
    device.add(15.0, 1.0)
    assert device.next_at(15.0) is None
    device.done(first, 17.0)
    assert device.next_at(17.0) == pytest.approx(18.0 - LEAD_SHARE * 1.0)


@pytest.mark.parametrize("cost", [None, LEAD_SECONDS])
def test_behind_a_short_or_unknown_one_the_next_is_chosen_at_once(cost: float | None) -> None:
    device = InFlight(2)
    device.add(7.0, cost)
    due = device.next_at(7.0)
    assert due is not None
    assert due <= 7.0


@given(depth=st.integers(1, 5), costs=st.lists(st.one_of(st.none(), seconds), max_size=10))
def test_no_more_are_chosen_than_the_depth(depth: int, costs: list[float | None]) -> None:
    device = InFlight(depth)
    for cost in costs:
        if device.next_at(0.0) is not None:
            device.add(0.0, cost)
    assert len(device) == min(depth, len(costs))


def test_a_depth_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        InFlight(0)


def test_only_long_ones_and_those_with_company_are_worth_a_second_thread() -> None:
    assert not overlaps(LEAD_SECONDS, others_wait=False)
    assert overlaps(LEAD_SECONDS, others_wait=True)
    assert overlaps(2 * LEAD_SECONDS, others_wait=False)
    assert overlaps(None, others_wait=False)


@given(running=st.floats(0.0, 1e4), cost=st.one_of(st.none(), st.floats(0.0, 1e3)))
def test_stuck_is_ten_times_the_cost_and_half_a_minute_at_least(running: float, cost: float | None) -> None:
    overdue = overdue_seconds(running, cost)
    assert (overdue > 0) == (running > STALL_SECONDS and running > STALL_FACTOR * (cost or 0.0))
    assert overdue <= running


def test_the_one_that_runs_is_overdue_since_its_turn_began() -> None:
    device = InFlight(2)
    assert device.overdue(0.0) == 0.0
    first, second = device.add(0.0, 60.0), device.add(0.0, None)
    assert device.overdue(600.0) == 0.0
    assert device.overdue(601.0) == 1.0
    device.done(first, 601.0)
    assert device.overdue(601.0 + STALL_SECONDS) == 0.0
    assert device.overdue(602.0 + STALL_SECONDS) == 1.0
    device.done(second, 700.0)
    assert device.overdue(1e6) == 0.0
