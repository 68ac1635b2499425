from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_policy.scheduling.coalesce import Batch, choose_batch
from reactant_policy.scheduling.cost import CostTable
from reactant_policy.scheduling.disciplines import DISCIPLINES, Candidate
from reactant_policy.scheduling.queues import ModelQueue, Waiting
from reactant_policy.scheduling.scheduler import ModelTerms, Scheduler

SIZES = st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True).map(lambda s: tuple(sorted(s)))


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


@given(SIZES, st.lists(st.integers(1, 64), min_size=1, max_size=80), st.integers(1, 64), st.data())
def test_a_batch_is_always_a_prefix_that_fits(
    sizes: tuple[int, ...], rows: list[int], max_rows: int, data: st.DataObject
) -> None:
    prefix = [min(r, sizes[-1]) for r in rows]
    costs = {size: data.draw(st.floats(1e-6, 10)) for size in sizes}
    batch = choose_batch(prefix, sizes, costs.__getitem__, max_rows)
    assert batch.count >= 1
    assert batch.rows == sum(prefix[: batch.count]) <= batch.size
    assert batch.size in sizes
    assert batch.rows <= max_rows or batch.count == 1


def test_cost_follows_the_moving_average_and_scales_unmeasured_sizes() -> None:
    costs = CostTable(alpha=0.2)
    assert costs.estimate("m", None, 8) == 8.0
    assert costs.measured("m", None, 8) is None
    costs.observe("m", None, 8, 1.0)
    costs.observe("m", None, 8, 2.0)
    assert costs.measured("m", None, 8) == pytest.approx(1.2)
    assert costs.estimate("m", None, 16) == pytest.approx(2.4)
    assert costs.estimate("m", 1, 16) == 16.0  # another variant is another program
    costs.forget("m")
    assert costs.estimate("m", None, 16) == 16.0
    with pytest.raises(ValueError, match="alpha must be in"):
        CostTable(0)


def test_one_hiccup_does_not_condemn_a_size() -> None:
    scheduler = Scheduler()
    scheduler.add_model("m", ModelTerms((8, 32), coalesces=True, max_batch_size=32))
    seconds = {8: 0.004, 32: 0.006}
    for size, cost in seconds.items():
        scheduler.observe("m", None, size, cost)
    for _ in range(3):
        scheduler.observe("m", None, 32, 0.1)
    sizes = []
    for number in range(3000):
        for ticket in range(32):
            scheduler.enqueue("m", Waiting(number * 32 + ticket, 1, None, 0.0))
        while (dispatch := scheduler.next_dispatch()) is not None:
            sizes.append(dispatch.size)
            scheduler.observe("m", None, dispatch.size, seconds[dispatch.size])
    assert set(sizes[-100:]) == {32}


def test_queue_refuses_a_ticket_twice_and_removes_from_the_middle() -> None:
    queue = ModelQueue()
    for ticket in (1, 2, 3):
        queue.push(Waiting(ticket, 1, None, float(ticket), deadline=float(ticket)))
    with pytest.raises(ValueError, match="ticket 2 is already queued"):
        queue.push(Waiting(2, 1, None, 0.0))
    removed = queue.remove(2)
    assert removed is not None
    assert removed.ticket == 2
    assert queue.remove(2) is None
    assert [r.ticket for r in queue.take(2)] == [1, 3]
    assert queue.head is None


def test_prefix_stops_at_another_variant_and_at_a_full_batch() -> None:
    queue = ModelQueue()
    for ticket, variant in enumerate([0, 0, 1, 0]):
        queue.push(Waiting(ticket, 2, variant, 0.0))
    assert queue.prefix(32) == [2, 2]
    assert queue.prefix(3) == [2]
    assert queue.prefix(1) == [2]  # the head always counts


def test_fifo_takes_the_oldest_head_and_breaks_ties_by_name() -> None:
    fifo = DISCIPLINES["fifo"]
    assert fifo([Candidate("b", 1.0), Candidate("a", 2.0)]) == "b"
    assert fifo([Candidate("b", 1.0), Candidate("a", 1.0)]) == "a"


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 8), st.sampled_from([None, 0, 1]), st.booleans()),
        max_size=60,
    )
)
def test_every_request_leaves_once_in_order_within_its_model(
    arrivals: list[tuple[str, int, int | None, bool]],
) -> None:
    scheduler = Scheduler()
    terms = {
        "a": ModelTerms((1, 8, 32), coalesces=True, max_batch_size=32),
        "b": ModelTerms((8,), coalesces=False, max_batch_size=8),
        "c": ModelTerms((2, 8), coalesces=True, max_batch_size=4),
    }
    for name, model_terms in terms.items():
        scheduler.add_model(name, model_terms)
    expected: dict[str, list[int]] = defaultdict(list)
    rows_of: dict[int, int] = {}
    for ticket, (model, rows, variant, cancelled) in enumerate(arrivals):
        scheduler.enqueue(model, Waiting(ticket, rows, variant, float(ticket)))
        rows_of[ticket] = rows
        if cancelled:
            assert scheduler.cancel(model, ticket) is not None
            assert scheduler.cancel(model, ticket) is None
        else:
            expected[model].append(ticket)

    seen: dict[str, list[int]] = defaultdict(list)
    while (dispatch := scheduler.next_dispatch()) is not None:
        assert len({r.variant for r in dispatch.requests}) == 1
        assert sum(r.rows for r in dispatch.requests) == dispatch.rows <= dispatch.size
        assert dispatch.rows <= terms[dispatch.model].max_batch_size or len(dispatch.requests) == 1
        if not terms[dispatch.model].coalesces:
            assert len(dispatch.requests) == 1
        seen[dispatch.model] += [r.ticket for r in dispatch.requests]
    assert seen == expected
    assert all(scheduler.depth(name) == 0 for name in terms)


def test_the_model_with_the_oldest_head_runs_first() -> None:
    scheduler = Scheduler()
    for name in ("x", "y"):
        scheduler.add_model(name, ModelTerms((1, 4), coalesces=True, max_batch_size=4))
    scheduler.enqueue("y", Waiting(1, 1, None, 1.0))
    scheduler.enqueue("x", Waiting(2, 1, None, 2.0))
    first, second = scheduler.next_dispatch(), scheduler.next_dispatch()
    assert first is not None
    assert second is not None
    assert (first.model, second.model) == ("y", "x")
    assert scheduler.next_dispatch() is None


def test_removing_a_model_returns_what_waited() -> None:
    scheduler = Scheduler()
    scheduler.add_model("m", ModelTerms((4,), coalesces=True, max_batch_size=4))
    scheduler.enqueue("m", Waiting(7, 1, None, 0.0))
    assert [r.ticket for r in scheduler.remove_model("m")] == [7]
    assert scheduler.next_dispatch() is None
    assert scheduler.depth("m") == 0
    with pytest.raises(KeyError):
        scheduler.enqueue("m", Waiting(8, 1, None, 0.0))


def test_rows_over_every_size_are_refused_when_queued() -> None:
    scheduler = Scheduler()
    scheduler.add_model("m", ModelTerms((4,), coalesces=True, max_batch_size=4))
    with pytest.raises(ValueError, match="5 rows exceed the largest compiled size 4"):
        scheduler.enqueue("m", Waiting(1, 5, None, 0.0))
