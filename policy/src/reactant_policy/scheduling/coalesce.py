"""How many waiting requests share the next execution, and at which compiled size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """`count` requests from the head of the queue, together `rows` rows, padded up to `size`."""

    count: int
    rows: int
    size: int


def smallest_size(sizes: Sequence[int], rows: int) -> int:
    """The smallest compiled size that holds `rows`; ValueError when none does."""
    for size in sizes:
        if rows <= size:
            return size
    raise ValueError(f"{rows} rows exceed the largest compiled size {sizes[-1]}")


def choose_batch(
    prefix: Sequence[int],
    sizes: Sequence[int],
    cost: Callable[[int], float],
    max_rows: int,
) -> Batch:
    """Picks the batch with the most useful rows per unit of cost.

    For each compiled size S up to `max_rows`, p(S) is the longest run from the head that fits S;
    the S with the largest p(S) ÷ cost(S) wins, among equals the one that takes more rows. A head that exceeds
    `max_rows` goes alone: requests are never split, and the oldest always progresses.

    Args:
        prefix: rows of the waiting requests of one variant, oldest first, not empty.
        sizes: compiled sizes, ascending.
        cost: device time of one execution at a size, in any unit.
        max_rows: bound on coalesced rows, at least 1.
    """
    head = prefix[0]
    if head > max_rows:
        return Batch(1, head, smallest_size(sizes, head))
    best: Batch | None = None
    best_score = 0.0
    count = rows = 0
    waiting = len(prefix)
    for size in sizes:
        limit = min(size, max_rows)
        while count < waiting and rows + prefix[count] <= limit:
            rows += prefix[count]
            count += 1
        if count == 0:
            continue
        score = rows / max(cost(size), 1e-12)
        # Equal rows at equal cost: the smaller size, which moves less padding.
        if best is None or score > best_score or (score == best_score and rows > best.rows):
            best, best_score = Batch(count, rows, size), score
        if size >= max_rows:
            break
    if best is None:
        raise ValueError(f"{head} rows exceed the largest compiled size {sizes[-1]}")
    return best


def fullest_size(sizes: Sequence[int], cost: Callable[[int], float], max_rows: int) -> int:
    """The compiled size that a long queue of single rows would run at; arguments as of `choose_batch`."""
    best, best_score = sizes[0], 0.0
    for size in sizes:
        score = min(size, max_rows) / max(cost(size), 1e-12)
        if score >= best_score:
            best, best_score = size, score
        if size >= max_rows:
            break
    return best
