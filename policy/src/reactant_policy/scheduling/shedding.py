"""Which waiting requests are given up because they cannot meet their deadlines."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import final

from reactant_policy.scheduling.coalesce import Batch, smallest_size
from reactant_policy.scheduling.model import ModelState
from reactant_policy.scheduling.queues import Waiting


@final
@dataclass(frozen=True, slots=True)
class InTime:
    """A batch of which every request meets its deadline, and those that are given up for it.

    `batch` counts from the head once `late` are gone; None when nothing of the head's variant can be
    saved.
    """

    batch: Batch | None
    late: tuple[Waiting, ...] = ()


def in_time(
    model: ModelState, rivals: Collection[ModelState], start: float, margin: float, *, alone: bool
) -> InTime:
    """What a model whose regular requests have deadlines shall run if the device is free at `start`.

    As planned, when nobody would be late. Else the batch is made smaller, when that puts things right. When
    it does not, some are lost whatever is done, and to run small batches for the sake of the oldest would
    lose more: those that are late for a batch are passed over, and given up when it is chosen.

    Args:
        model: has regular requests and no committed ones.
        rivals: every model with something waiting, itself among them.
        start: seconds on the caller's monotonic clock.
        margin: seconds to keep free before a deadline, as long as there are others to choose from.
        alone: no other model has a batch that could run.
    """
    plan = model.plan()
    end = start + plan.seconds
    if model.queue.soonest >= end + margin:
        return InTime(plan.batch)
    if not any(_late(request, end + margin) for request in islice(model.queue, plan.batch.count)):
        return InTime(plan.batch)
    if not _crowded(model, rivals, start):
        smaller = _choose(model, start, passes_over=False)
        if smaller.batch is not None and _relieves(model, smaller.batch, start):
            return smaller
    # However bad the predictions were, whoever has more than half of the time left is worth a try.
    horizon = max(rival.queue.latest for rival in rivals)
    safe = _choose(model, start + min(margin, max(0.0, horizon - start) / 2.0), passes_over=True)
    if safe.batch is None and alone:
        # Better a batch that may be late than none.
        return _choose(model, start, passes_over=True)
    return safe


def _crowded(model: ModelState, rivals: Collection[ModelState], start: float) -> bool:
    """What waits, on every model whose turn may come first, takes longer than any deadline allows."""
    latest = model.queue.latest
    return start + sum(r.backlog_seconds() for r in rivals if r.queue.soonest <= latest) > latest


def _relieves(model: ModelState, batch: Batch, start: float) -> bool:
    """The request behind a batch is in time for a full one after it."""
    behind = next(islice(model.queue, batch.count, None), None)
    seconds = model.costs(model.queue.variant).seconds[batch.size] + model.plan().full_seconds
    return behind is None or not _late(behind, start + seconds)


def _choose(model: ModelState, start: float, *, passes_over: bool) -> InTime:
    """The batch with the most rows per cost among those in which nobody is late."""
    sizes, costs = model.terms.sizes, model.costs(model.queue.variant)
    best, best_score = InTime(None), (0.0, 0)
    for size in sizes:
        found = _fill(model, size, start + costs.seconds[size], passes_over=passes_over)
        if found.batch is not None:
            score = (found.batch.rows / max(costs.compared[size], 1e-12), found.batch.rows)
            if score > best_score:
                best, best_score = found, score
    if best.batch is not None:
        return best
    ends = {size: start + costs.seconds[size] for size in sizes}
    return InTime(None, tuple(r for r in _run(model) if _late(r, ends[smallest_size(sizes, r.rows)])))


def _fill(model: ModelState, size: int, end: float, *, passes_over: bool) -> InTime:
    """The batch at one size, with those that it passes over as late."""
    late: list[Waiting] = []
    limit = min(size, model.terms.limit)
    count = rows = passed = 0
    for request in _run(model) if model.queue.last_chance >= end else ():
        if _late(request, end):
            if not passes_over:
                break
            late.append(request)
        elif rows + request.rows <= limit or (count == 0 and request.rows <= size):
            count += 1
            rows += request.rows
            passed = len(late)
            if rows >= limit:
                break
        else:
            break
    return InTime(Batch(count, rows, size) if count else None, tuple(late[:passed]))


def _run(model: ModelState) -> Iterator[Waiting]:
    variant = model.queue.variant
    for request in model.queue:
        if request.variant != variant:
            return
        yield request


def _late(request: Waiting, end: float) -> bool:
    return request.deadline is not None and request.deadline < end
