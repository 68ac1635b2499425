from __future__ import annotations

import pytest

from reactant_policy.scheduling.lateness import Lateness, Margin
from reactant_policy.scheduling.ledger import Ledger, Promise


def test_predictions_that_hold_need_no_margin() -> None:
    lateness = Lateness()
    assert lateness.seconds == 0.0
    for _ in range(10):
        lateness.observe(0.0)
    assert lateness.seconds == 0.0


def test_the_margin_covers_what_varies_and_a_hiccup_does_not_open_it_wide() -> None:
    lateness = Lateness()
    for number in range(200):
        lateness.observe(0.01 if number % 2 else -0.01)
    usual = lateness.seconds
    assert 0.01 < usual < 0.06
    lateness.observe(10.0)
    assert lateness.seconds < 4 * usual
    for _ in range(60):
        lateness.observe(0.0)
    assert lateness.seconds < 0.01


def test_what_comes_late_from_now_on_is_believed() -> None:
    lateness = Lateness()
    for _ in range(10):
        lateness.observe(0.0)
    for _ in range(20):
        lateness.observe(1.0)
    assert lateness.seconds > 1.0


def test_what_always_comes_sooner_needs_no_margin() -> None:
    lateness = Lateness()
    for _ in range(100):
        lateness.observe(-0.01)
    assert lateness.seconds == 0.0


def test_execution_and_delivery_add_up() -> None:
    margin = Margin()
    for _ in range(100):
        margin.execution.observe(0.002)
        margin.delivery.observe(0.003)
    assert margin.seconds == pytest.approx(0.005, rel=0.01)


def test_a_ledger_settles_the_oldest_of_its_kind_and_what_never_ended_before_it() -> None:
    ledger = Ledger()
    for number, model in enumerate("aabab"):
        ledger.add(model, None, 8, Promise(float(number), 0.0))
    first, second = ledger.settle("a", None, 8), ledger.settle("b", None, 8)
    assert first is not None
    assert second is not None
    assert (first.seconds, second.seconds) == (0.0, 2.0)
    assert ledger.settle("a", None, 4) is None
    third = ledger.settle("a", None, 8)
    assert third is not None
    assert third.seconds == 3.0  # the second of "a" failed
    fourth = ledger.settle("b", None, 8)
    assert fourth is not None
    assert fourth.seconds == 4.0
    assert ledger.settle("b", None, 8) is None


def test_promises_that_are_never_kept_are_forgotten() -> None:
    ledger = Ledger()
    for number in range(1000):
        ledger.add("failing", None, number, Promise(0.0, 0.0))
    assert ledger.settle("failing", None, 0) is None
    assert ledger.settle("failing", None, 999) is not None
