from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_policy.restarts import EX_CONFIG, GiveUp, Restart, RestartPolicy, after_exit

POLICY = RestartPolicy(
    max_restarts=3, first_delay_seconds=1.0, factor=2.0, cap_seconds=3.0, good_life_seconds=60.0
)


def _row(
    policy: RestartPolicy, lives: list[float], exit_code: int = 1, *, started_before: bool = False
) -> list[Restart | GiveUp]:
    decisions: list[Restart | GiveUp] = []
    failures = 0
    for life in lives:
        first = not started_before and not decisions
        decision = after_exit(
            policy, failures=failures, lived_seconds=life, exit_code=exit_code, first_start=first
        )
        failures = decision.failures
        decisions.append(decision)
    return decisions


def test_delays_double_up_to_the_cap_then_the_node_goes_down() -> None:
    *restarts, last = _row(POLICY, [0.1] * 4)
    assert restarts == [Restart(1.0, 1), Restart(2.0, 2), Restart(3.0, 3)]
    assert isinstance(last, GiveUp)
    assert "failed 4 times in a row" in last.reason
    assert "3 restarts" in last.reason
    assert not last.configuration_refused


def test_a_good_life_begins_a_new_row() -> None:
    assert _row(POLICY, [0.1, 0.1, 0.1, 60.0, 59.9]) == [
        Restart(1.0, 1),
        Restart(2.0, 2),
        Restart(3.0, 3),
        Restart(1.0, 1),
        Restart(2.0, 2),
    ]


@pytest.mark.parametrize("exit_code", [0, 1, -9, -11, 143])
def test_every_other_exit_is_a_failure(exit_code: int) -> None:
    assert _row(POLICY, [1.0], exit_code) == [Restart(1.0, 1)]


def test_a_configuration_refused_at_the_first_start_is_final_however_long_it_lived() -> None:
    for life in (0.1, 1000.0):
        (decision,) = _row(POLICY, [life], EX_CONFIG)
        assert isinstance(decision, GiveUp)
        assert "configuration" in decision.reason
        assert decision.configuration_refused


def test_a_configuration_refused_later_is_a_failure_like_any_other_and_says_so() -> None:
    lives = [0.1, 0.1, 60.0, 0.1, 0.1, 0.1]
    refused = _row(POLICY, lives, EX_CONFIG, started_before=True)
    failed = _row(POLICY, lives, 1, started_before=True)
    for one, other in zip(refused[:-1], failed[:-1], strict=True):
        assert isinstance(one, Restart)
        assert isinstance(other, Restart)
        assert (one.delay_seconds, one.failures) == (other.delay_seconds, other.failures)
        assert "refused its configuration, but not at its first start" in one.remark
        assert other.remark == ""
    last = refused[-1]
    assert isinstance(last, GiveUp)
    assert not last.configuration_refused
    assert "failed 4 times in a row" in last.reason
    assert "refused its configuration" in last.reason


def test_no_restarts_allowed() -> None:
    (decision,) = _row(RestartPolicy(max_restarts=0), [0.1])
    assert isinstance(decision, GiveUp)


def test_faulty_numbers_are_named_together() -> None:
    with pytest.raises(ValueError, match=r"max_restarts is -1.*factor is 0\.5.*cap_seconds is nan"):
        RestartPolicy(max_restarts=-1, factor=0.5, cap_seconds=math.nan)


@given(failures=st.integers(1, 10**9), factor=st.floats(1.0, 1e6))
def test_a_delay_is_finite_and_never_over_the_cap(failures: int, factor: float) -> None:
    policy = RestartPolicy(factor=factor)
    assert policy.first_delay_seconds <= policy.delay_seconds(failures) <= policy.cap_seconds
