from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.tests.scheduling.simulation import STEADY

from reactant_policy.scheduling.queues import ModelQueue, Waiting


def test_queue_refuses_a_ticket_twice_and_removes_from_the_middle() -> None:
    queue = ModelQueue()
    for ticket in (1, 2, 3):
        queue.push(Waiting(ticket, 1, None, float(ticket), deadline=float(ticket)))
    for committed in (False, True):
        with pytest.raises(ValueError, match="ticket 2 is already queued"):
            queue.push(Waiting(2, 1, None, 0.0, committed=committed))
    removed = queue.remove(2)
    assert removed is not None
    assert removed.ticket == 2
    assert queue.remove(2) is None
    assert [r.ticket for r in queue.take(2)] == [1, 3]
    assert queue.head is None


def test_prefix_stops_at_another_variant_and_at_a_full_batch() -> None:
    queue = ModelQueue()
    assert queue.prefix(8) == []
    for ticket, variant in enumerate([0, 0, 1, 0]):
        queue.push(Waiting(ticket, 2, variant, 0.0))
    assert [r.ticket for r in queue.prefix(32)] == [0, 1]
    assert [r.ticket for r in queue.prefix(3)] == [0]
    assert [r.ticket for r in queue.prefix(1)] == [0]  # the head always counts


def test_committed_requests_go_before_regular_ones() -> None:
    queue = ModelQueue()
    for ticket in range(6):
        queue.push(Waiting(ticket, 1, None, 0.0, committed=ticket % 2 == 1))
    assert [r.ticket for r in queue.prefix(5)] == [1, 3, 5, 0, 2]
    assert [r.ticket for r in queue.take(4)] == [1, 3, 5, 0]
    assert [r.ticket for r in queue] == [2, 4]


def test_a_queue_that_runs_full_of_long_deadlines_remembers_only_those_that_wait() -> None:
    queue = ModelQueue()
    queue.push(Waiting(0, 1, None, 0.0, deadline=1e6))
    for ticket in range(1, 10_000):
        queue.push(Waiting(ticket, 1, None, 0.0, deadline=1e6 + ticket))
        queue.remove(ticket)
    assert len(queue._regular._due) < 100
    assert queue.soonest == 1e6


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("push"), st.integers(1, 4), st.one_of(st.none(), st.integers(0, 20)), st.booleans()
        ),
        st.tuples(st.just("remove"), st.integers(0, 40)),
        st.tuples(st.just("take"), st.integers(0, 5)),
        st.tuples(st.just("due"), st.integers(0, 20), st.booleans()),
    ),
    max_size=60,
)


@STEADY
@given(OPERATIONS)
def test_a_queue_does_what_two_lists_do(operations: list[tuple[object, ...]]) -> None:
    queue = ModelQueue()
    model: list[Waiting] = []
    for ticket, (kind, *values) in enumerate(operations):
        ordered = [r for r in model if r.committed] + [r for r in model if not r.committed]
        if kind == "push":
            rows, due, committed = values
            deadline = None if due is None else float(due)  # type: ignore[arg-type]
            request = Waiting(ticket, int(rows), None, 0.0, deadline, bool(committed))  # type: ignore[call-overload]
            queue.push(request)
            model.append(request)
        elif kind == "remove":
            found = next((r for r in model if r.ticket == values[0]), None)
            assert queue.remove(int(values[0])) == found  # type: ignore[call-overload]
            model = [r for r in model if r is not found]
        elif kind == "take":
            taken = ordered[: int(values[0])]  # type: ignore[call-overload]
            assert list(queue.take(len(taken))) == taken
            model = [r for r in model if r not in taken]
        else:
            before, also = float(values[0]), bool(values[1])  # type: ignore[arg-type]
            due = [
                r
                for r in model
                if r.deadline is not None and r.deadline < before and (also or not r.committed)
            ]
            popped = queue.pop_due(before, committed=also)
            assert sorted(r.ticket for r in popped) == sorted(r.ticket for r in due)
            model = [r for r in model if r not in due]
        assert list(queue) == [r for r in model if r.committed] + [r for r in model if not r.committed]
        assert len(queue) == len(model)
        assert queue.rows == sum(r.rows for r in model)
        regular = [r.deadline for r in model if not r.committed]
        ends = [d for d in regular if d is not None]
        assert queue.soonest == min(ends, default=inf)
        assert queue.next_due == min((r.deadline for r in model if r.deadline is not None), default=inf)
        assert all(d <= queue.latest for d in ends)
        assert all(queue.last_chance >= (inf if d is None else d) for d in regular)
