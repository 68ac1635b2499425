from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.tests.scheduling.simulation import SIZES, STEADY

from reactant_policy.scheduling.coalesce import Batch, choose_batch, fullest_size


def proportional(size: int) -> float:
    return float(size)


def flat(_size: int) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("prefix", "cost", "max_rows", "expected"),
    [
        ([1], proportional, 32, Batch(1, 1, 1)),
        ([1] * 5, flat, 32, Batch(5, 5, 8)),  # flat cost: more rows always win
        ([1] * 5, proportional, 32, Batch(1, 1, 1)),  # 1/1 beats 5/8
        ([1] * 8, proportional, 32, Batch(8, 8, 8)),  # tie of 1/1 and 8/8: the larger
        ([1] * 100, flat, 32, Batch(32, 32, 32)),
        ([1] * 100, flat, 10, Batch(10, 10, 32)),  # bound below a compiled size
        ([20], flat, 10, Batch(1, 20, 32)),  # over the bound: alone
        ([5, 5, 5], flat, 8, Batch(1, 5, 8)),  # never split
        ([3], flat, 32, Batch(1, 3, 8)),  # equal cost and rows: the smaller size
    ],
)
def test_choice_of_batch(prefix: list[int], cost: object, max_rows: int, expected: Batch) -> None:
    assert choose_batch(prefix, (1, 8, 32), cost, max_rows) == expected  # type: ignore[arg-type]


def test_a_head_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="33 rows exceed the largest compiled size 32"):
        choose_batch([33], (1, 32), flat, 64)


@STEADY
@given(SIZES, st.lists(st.integers(1, 64), min_size=1, max_size=80), st.integers(1, 64), st.data())
def test_a_batch_is_a_prefix_that_fits_and_no_size_gives_more_rows_per_cost(
    sizes: tuple[int, ...], rows: list[int], max_rows: int, data: st.DataObject
) -> None:
    prefix = [min(r, sizes[-1]) for r in rows]
    costs = {size: data.draw(st.floats(1e-6, 10)) for size in sizes}
    batch = choose_batch(prefix, sizes, costs.__getitem__, max_rows)
    assert batch.count >= 1
    assert batch.rows == sum(prefix[: batch.count]) <= batch.size
    assert batch.size in sizes
    if prefix[0] > max_rows:
        assert batch.count == 1
        return
    assert batch.rows <= max_rows
    enough = min((size for size in sizes if size >= max_rows), default=sizes[-1])
    for size in sizes[: sizes.index(enough) + 1]:  # a larger one could only hold more padding
        fits = max(k for k in range(len(prefix) + 1) if sum(prefix[:k]) <= min(size, max_rows))
        assert sum(prefix[:fits]) / costs[size] <= batch.rows / costs[batch.size]


@pytest.mark.parametrize(
    ("cost", "max_rows", "expected"), [(flat, 32, 32), (flat, 10, 32), (proportional, 32, 32), (flat, 8, 8)]
)
def test_the_size_a_long_queue_runs_at(cost: object, max_rows: int, expected: int) -> None:
    assert fullest_size((1, 8, 32), cost, max_rows) == expected  # type: ignore[arg-type]


def test_a_large_size_that_is_too_dear_is_not_the_one_to_wait_for() -> None:
    assert fullest_size((1, 8, 32), {1: 1.0, 8: 2.0, 32: 20.0}.__getitem__, 32) == 8
