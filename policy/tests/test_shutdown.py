from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_policy.shutdown import StopSchedule, stop_schedule


@pytest.mark.parametrize(
    ("gateway", "workers", "expected"),
    [
        (True, True, StopSchedule(22.0, 25.5, 26.5)),
        (False, True, StopSchedule(0.0, 26.5, 26.5)),
        (True, False, StopSchedule(26.5, 26.5, 26.5)),
    ],
)
def test_the_shares_of_a_stop(gateway: bool, workers: bool, expected: StopSchedule) -> None:
    assert stop_schedule(27.0, gateway=gateway, workers=workers) == expected


@given(budget=st.floats(0, 1e4), gateway=st.booleans(), workers=st.booleans())
def test_parts_come_in_order_and_end_within_the_budget(budget: float, gateway: bool, workers: bool) -> None:
    schedule = stop_schedule(budget, gateway=gateway, workers=workers)
    assert 0 <= schedule.drained_by <= schedule.workers_ended_by <= schedule.killed_at <= budget


def test_a_negative_budget_is_a_fault() -> None:
    with pytest.raises(ValueError, match="budget_seconds is -1"):
        stop_schedule(-1, gateway=True, workers=True)
