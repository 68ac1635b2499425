from __future__ import annotations

from itertools import accumulate

import pytest

from reactant_policy.routing.health import (
    Outcome,
    ProbeState,
    after_loss,
    after_probe,
    next_probe_seconds,
)

READY, NOT_READY, FAILED, REFUSED = Outcome
STEADY = ProbeState(available=True)


def _row(*outcomes: Outcome, start: ProbeState = STEADY) -> list[bool]:
    return [state.available for state in accumulate(outcomes, after_probe, initial=start)][1:]


def test_three_failures_in_a_row_eject() -> None:
    assert _row(FAILED, FAILED, FAILED) == [True, True, False]
    assert _row(FAILED, FAILED, READY, FAILED, FAILED, FAILED) == [True] * 5 + [False]


@pytest.mark.parametrize("outcome", [REFUSED, NOT_READY])
def test_a_refusal_and_not_ready_eject_at_once(outcome: Outcome) -> None:
    assert _row(outcome, READY) == [False, True]


def test_not_ready_is_no_fault() -> None:
    assert after_probe(STEADY, NOT_READY).failures == 0


def test_a_worker_never_seen_is_out_until_a_probe_succeeds() -> None:
    assert _row(FAILED, NOT_READY, REFUSED, READY, start=ProbeState()) == [False, False, False, True]


def test_a_failed_probe_is_followed_soon_and_a_good_one_after_the_interval() -> None:
    assert next_probe_seconds(STEADY, 10.0) == 10.0
    assert next_probe_seconds(after_probe(STEADY, FAILED), 10.0) == 0.25
    assert next_probe_seconds(ProbeState(), 10.0) == 0.0
    assert next_probe_seconds(after_loss(STEADY), 10.0) == 0.0
    assert not after_loss(STEADY).available


@pytest.mark.parametrize("outcome", [REFUSED, NOT_READY, FAILED])
def test_while_out_the_wait_rises_to_a_second(outcome: Outcome) -> None:
    states = accumulate([outcome] * 5, after_probe, initial=after_loss(STEADY))
    assert [next_probe_seconds(state, 10.0) for state in states] == [0.0, 0.25, 0.5, 1.0, 1.0, 1.0]


def test_one_that_comes_and_goes_waits_longer_until_it_is_steady() -> None:
    waits, state = [], STEADY
    for _ in range(4):
        state = after_loss(state)
        waits.append(next_probe_seconds(state, 10.0))
        state = after_probe(state, READY)
    assert waits == [0.0, 0.25, 0.5, 1.0]
    assert next_probe_seconds(after_loss(after_probe(state, READY)), 10.0) == 0.0
