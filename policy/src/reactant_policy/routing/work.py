"""How much a request weighs while it is in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from reactant_policy.routing.table import Route

WORK_BASES: Final = ("requests", "items", "compute")
"""Accepted values of `work_basis`."""

UNMEASURED_SECONDS: Final = 0.001
"""Cost of an item while no model of the fleet has been measured: all weigh the same."""


def items_of(route: Route, items: int | None) -> int:
    """How many items one request counts for.

    Args:
        route: the model's; one without a batch axis counts one item a request.
        items: the batch that the request states, None where that is not known. Anything outside of 0 to
            the model's largest batch is cut to it: a worker refuses such a request anyway.
    """
    if items is None or route.batch_input is None:
        return 1
    return min(max(items, 0), route.max_batch_size or items)


def work_of(basis: str, route: Route, items: int | None, mean_seconds: float) -> float:
    """The weight of one request: 1, its items, or items x measured device seconds of an item.

    Args:
        basis: one of `WORK_BASES`.
        route: the model's.
        items: the batch that the request states, as `items_of` has it.
        mean_seconds: what an item of a model that is not yet measured costs; 0: nothing is measured.
    """
    if basis == "requests":
        return 1.0
    count = float(items_of(route, items))
    if basis == "items":
        return count
    seconds = route.seconds_per_item
    if seconds is None:
        seconds = mean_seconds if mean_seconds > 0 else UNMEASURED_SECONDS
    return count * seconds


@final
@dataclass(frozen=True, slots=True)
class Totals:
    """A model's counters on one worker since it was loaded.

    Attributes:
        compute_seconds: device time.
        rows: items served.
    """

    compute_seconds: float
    rows: int


def seconds_per_item(before: Totals | None, now: Totals, known: float | None) -> float | None:
    """Device time of an item between two readings of the counters.

    Counters that went back belong to a model loaded anew and are read from zero, as is a first reading.

    Args:
        before: the reading before this one, if there was one.
        now: this reading.
        known: the measurement so far; it stays when nothing was served between the two or the numbers are
            none.
    """
    if before is None or now.rows < before.rows or now.compute_seconds < before.compute_seconds:
        before = Totals(0.0, 0)
    rows = now.rows - before.rows
    seconds = now.compute_seconds - before.compute_seconds
    if rows <= 0 or not math.isfinite(seconds) or seconds < 0:
        return known
    return seconds / rows
