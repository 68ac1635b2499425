"""What a decision costs, counted in lines that run: no clock, so that a busy machine changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from reactant_policy.scheduling.disciplines import DISCIPLINE_NAMES, make_discipline
from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.scheduler import ModelTerms, Scheduler

SIZES = (1, 8, 32)


def lines(action: Callable[[], object]) -> int:
    """Lines of Python that an action runs."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def loaded(discipline: str, *, active: int, idle: int, depth: int) -> Scheduler:
    """A scheduler that has looked at every queue once, as after some decisions."""
    scheduler = Scheduler(make_discipline(discipline))
    for number in range(active + idle):
        scheduler.add_model(f"m{number}", ModelTerms(SIZES, coalesces=True, max_batch_size=SIZES[-1]))
        for size in SIZES:
            scheduler.seed(f"m{number}", None, size, 0.010 + 0.001 * size)
    for number in range(active):
        for ticket in range(depth):
            at = 0.001 * ticket
            scheduler.enqueue(f"m{number}", Waiting(number * depth + ticket, 1, None, at, at + 1e6))
    scheduler.next(1.0)
    return scheduler


@pytest.mark.parametrize("discipline", DISCIPLINE_NAMES)
def test_idle_models_and_deep_queues_cost_a_decision_nothing(discipline: str) -> None:
    few = loaded(discipline, active=5, idle=0, depth=100)
    many = loaded(discipline, active=5, idle=500, depth=2000)
    assert lines(lambda: few.next(2.0)) == lines(lambda: many.next(2.0))


@pytest.mark.parametrize("discipline", DISCIPLINE_NAMES)
def test_another_active_model_costs_a_few_lines(discipline: str) -> None:
    one = loaded(discipline, active=1, idle=0, depth=100)
    fifty = loaded(discipline, active=50, idle=0, depth=100)
    assert (lines(lambda: fifty.next(2.0)) - lines(lambda: one.next(2.0))) / 49 < 40


def test_what_is_given_up_is_looked_at_once() -> None:
    """At overload the cost of a decision follows what leaves the queue, not what waits in it."""
    costs = []
    for depth in (1000, 4000):
        scheduler = loaded("edf", active=1, idle=0, depth=depth)
        scheduler.next(1e6 + 0.2)  # gives up 200, and what is late for a full batch
        costs.append(lines(lambda scheduler=scheduler: scheduler.next(1e6 + 0.25)))  # type: ignore[misc]
    assert costs[0] == costs[1]


def test_a_size_for_which_everybody_is_late_is_not_looked_into() -> None:
    costs = []
    for depth in (500, 2000):
        scheduler = loaded("edf", active=1, idle=0, depth=0)
        for ticket in range(depth):
            scheduler.enqueue("m0", Waiting(ticket, 1, None, 0.0, 0.030))  # a batch of 32 takes 0.042
        costs.append(lines(lambda scheduler=scheduler: scheduler.next(0.0)))  # type: ignore[misc]
    assert costs[0] == costs[1]
