from __future__ import annotations

import math

import pytest

from reactant_policy.routing.table import Route
from reactant_policy.routing.work import UNMEASURED_SECONDS, Totals, seconds_per_item, work_of

BATCHED = Route("m", ("a",), True, "x", 0, 0.5, 8)
PLAIN = Route("m", ("a",), True, None, 0, 0.5)
NEW = Route("m", ("a",), True, "x", 0, None, 8)


@pytest.mark.parametrize(
    ("basis", "route", "items", "work"),
    [
        ("requests", BATCHED, 4, 1.0),
        ("items", BATCHED, 4, 4.0),
        ("items", BATCHED, None, 1.0),
        ("items", PLAIN, 4, 1.0),
        ("compute", BATCHED, 4, 2.0),
        ("compute", PLAIN, 4, 0.5),
        ("compute", NEW, 4, 8.0),
    ],
)
def test_work(basis: str, route: Route, items: int | None, work: float) -> None:
    assert work_of(basis, route, items, mean_seconds=2.0) == work


def test_items_no_worker_would_take_weigh_no_more_than_a_full_batch() -> None:
    assert [work_of("items", BATCHED, items, 0.0) for items in (2**62, -5, 0)] == [8.0, 0.0, 0.0]


def test_a_fleet_without_measurements_counts_items() -> None:
    assert work_of("compute", NEW, 3, 0.0) == 3 * UNMEASURED_SECONDS


@pytest.mark.parametrize(
    ("before", "now", "known", "cost"),
    [
        (None, Totals(2.0, 4), None, 0.5),
        (Totals(2.0, 4), Totals(3.0, 14), 0.5, 0.1),
        (Totals(2.0, 4), Totals(2.0, 4), 0.5, 0.5),
        (Totals(2.0, 4), Totals(1.0, 1), 0.5, 1.0),
        (Totals(0.0, 4), Totals(1.0, 1), 0.5, 1.0),
        (None, Totals(0.0, 0), None, None),
        (None, Totals(math.nan, 4), None, None),
        (None, Totals(math.inf, 4), 0.5, 0.5),
        (None, Totals(-1.0, 4), None, None),
    ],
)
def test_cost_of_an_item(before: Totals | None, now: Totals, known: float | None, cost: float | None) -> None:
    assert seconds_per_item(before, now, known) == cost
