from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy.tests.scheduling.simulation import STEADY

from reactant_policy.scheduling.disciplines import DISCIPLINE_NAMES, make_discipline
from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.scheduler import Decision, ModelTerms, Scheduler

TERMS = {
    "a": ModelTerms((1, 8, 32), coalesces=True, max_batch_size=32),
    "b": ModelTerms((8,), coalesces=False, max_batch_size=8),
    "c": ModelTerms((2, 8), coalesces=True, max_batch_size=4, max_queue_delay_seconds=3.0),
}
SECONDS_PER_ROW = 0.25


def scheduler_of(discipline: str) -> Scheduler:
    scheduler = Scheduler(make_discipline(discipline))
    for name, terms in TERMS.items():
        scheduler.add_model(name, terms)
    return scheduler


ARRIVALS = st.tuples(
    st.just("arrive"),
    st.sampled_from("abc"),
    st.integers(1, 8),
    st.sampled_from([None, 0, 1]),
    st.one_of(st.none(), st.integers(0, 12)),
    st.booleans(),
)
STEPS = st.lists(
    st.one_of(
        ARRIVALS,
        ARRIVALS,
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.integers(0, 4)),
        st.tuples(st.just("weigh"), st.sampled_from("abc"), st.integers(1, 9)),
        st.tuples(st.just("next"), st.integers(0, 2)),
        st.tuples(st.just("next"), st.integers(0, 2)),
    ),
    max_size=70,
)


@dataclass
class Run:
    """Steps done to a scheduler, with everything that must hold after each."""

    discipline: str
    now: float = 0.0
    waiting: dict[int, tuple[str, Waiting]] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.scheduler = scheduler_of(self.discipline)
        for name, terms in TERMS.items():
            for size in terms.sizes:
                self.scheduler.seed(name, None, size, size * SECONDS_PER_ROW)

    def arrive(
        self, ticket: int, model: str, rows: int, variant: int | None, due: int | None, committed: bool
    ) -> None:
        deadline = None if due is None else self.now + due
        request = Waiting(ticket, rows, variant, self.now, deadline, committed)
        self.scheduler.enqueue(model, request)
        self.waiting[ticket] = (model, request)

    def cancel(self, ticket: int) -> None:
        model, request = self.waiting.get(ticket, ("a", None))
        assert self.scheduler.cancel(model, ticket) == request
        self.gone(ticket)

    def gone(self, ticket: int) -> None:
        if self.waiting.pop(ticket, None) is not None:
            assert ticket not in self.left, "left twice"
            self.left.add(ticket)

    def queue(self, model: str) -> list[Waiting]:
        own = [request for name, request in self.waiting.values() if name == model]
        return [r for r in own if r.committed] + [r for r in own if not r.committed]

    def next(self, in_flight: float) -> None:
        committed = [r for _, r in self.waiting.values() if r.committed and not self.is_past(r)]
        decision = self.scheduler.next(self.now, in_flight)
        self.check_drops(decision, in_flight)
        assert not any(self.is_past(request) for _, request in self.waiting.values())
        if decision.dispatch is None:
            self.check_idleness(decision)
            return
        assert decision.wait_until is None
        self.check_batch(decision, committed[0] if committed else None)
        dispatch = decision.dispatch
        seconds = dispatch.size * SECONDS_PER_ROW
        self.scheduler.observe(
            dispatch.model, dispatch.variant, dispatch.size, seconds, self.now + in_flight + seconds
        )

    def is_past(self, request: Waiting) -> bool:
        return request.deadline is not None and request.deadline <= self.now

    def check_drops(self, decision: Decision, in_flight: float) -> None:
        for model, request in decision.dropped:
            assert self.waiting[request.ticket] == (model, request)
            assert request.deadline is not None
            if request.deadline > self.now:
                assert self.discipline == "edf"
                assert not request.committed
                longest = max(TERMS[model].sizes) * SECONDS_PER_ROW
                assert self.now + in_flight + longest > request.deadline
            self.gone(request.ticket)

    def check_idleness(self, decision: Decision) -> None:
        """The device idles only while every batch that could run may still be filled."""
        held = {model for model, _ in self.waiting.values()}
        assert all(TERMS[model].max_queue_delay_seconds for model in held)
        assert (decision.wait_until is not None) == bool(held)
        if decision.wait_until is not None:
            assert decision.wait_until > self.now
            for model in held:
                assert (
                    decision.wait_until <= self.queue(model)[0].arrived + TERMS[model].max_queue_delay_seconds
                )

    def check_batch(self, decision: Decision, committed: Waiting | None) -> None:
        dispatch = decision.dispatch
        assert dispatch is not None
        terms = TERMS[dispatch.model]
        ahead = self.queue(dispatch.model)[: len(dispatch.requests)]
        assert list(dispatch.requests) == ahead, "first in, first out"
        if committed is not None:
            assert dispatch.requests[0] == committed, "the oldest committed one first"
        assert {r.variant for r in dispatch.requests} == {dispatch.variant}
        assert sum(r.rows for r in dispatch.requests) == dispatch.rows <= dispatch.size
        assert dispatch.size in terms.sizes
        assert len(dispatch.requests) == 1 or (terms.coalesces and dispatch.rows <= terms.max_batch_size)
        for request in dispatch.requests:
            self.gone(request.ticket)


@pytest.mark.parametrize("discipline", DISCIPLINE_NAMES)
@STEADY
@given(steps=STEPS)
def test_whatever_happens(discipline: str, steps: list[tuple[object, ...]]) -> None:
    run = Run(discipline)
    for ticket, (kind, *values) in enumerate(steps):
        match kind:
            case "arrive":
                run.arrive(ticket, *values)  # type: ignore[arg-type]
            case "cancel":
                run.cancel(*values)  # type: ignore[arg-type]
            case "wait":
                run.now += float(*values)  # type: ignore[arg-type]
            case "weigh":
                run.scheduler.set_weight(*values)  # type: ignore[arg-type]
            case _:
                run.next(*values)  # type: ignore[arg-type]
        depths = {name: run.scheduler.depth(name) for name in TERMS}
        assert depths == {name: len(run.queue(name)) for name in TERMS}
    run.now += 1000.0
    for _ in steps:
        run.next(0.0)
    assert not run.waiting


@STEADY
@given(
    arrivals=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 8), st.sampled_from([None, 0, 1]), st.booleans()),
        max_size=40,
    ),
    deadline=st.one_of(st.none(), st.just(1e6)),
)
def test_edf_with_equal_deadlines_or_none_is_fifo(
    arrivals: list[tuple[str, int, int | None, bool]], deadline: float | None
) -> None:
    schedulers = [scheduler_of(name) for name in ("edf", "fifo")]
    now = 0.0
    for ticket, (model, rows, variant, decides) in enumerate(arrivals):
        now += ticket % 3  # some arrive at the same time
        for scheduler in schedulers:
            scheduler.enqueue(model, Waiting(ticket, rows, variant, now, deadline))
        if decides:
            edf, fifo = (scheduler.next(now) for scheduler in schedulers)
            assert edf == fifo
    now += 10.0
    while (decisions := [scheduler.next(now) for scheduler in schedulers])[0].dispatch is not None:
        assert decisions[0] == decisions[1]
        for scheduler in schedulers:
            dispatch = decisions[0].dispatch
            scheduler.observe(dispatch.model, dispatch.variant, dispatch.size, 0.01 * dispatch.size, now)
    assert decisions[1].dispatch is None
    assert all(scheduler.depth(name) == 0 for name in TERMS for scheduler in schedulers)


def test_the_oldest_committed_request_goes_before_everything_and_the_batch_is_filled() -> None:
    scheduler = scheduler_of("fifo")
    for size in (1, 8, 32):
        scheduler.seed("a", None, size, 1.0)
    scheduler.enqueue("b", Waiting(0, 1, None, 0.0))
    scheduler.enqueue("a", Waiting(1, 1, None, 1.0))
    scheduler.enqueue("c", Waiting(2, 1, None, 2.0, committed=True))
    scheduler.enqueue("a", Waiting(3, 1, None, 3.0, committed=True))
    scheduler.enqueue("a", Waiting(4, 1, 1, 4.0))
    order = []
    while (dispatch := scheduler.next(5.0).dispatch) is not None:
        order.append((dispatch.model, [r.ticket for r in dispatch.requests]))
    assert order == [("c", [2]), ("a", [3, 1]), ("b", [0]), ("a", [4])]


def test_a_committed_request_joins_a_model_whose_next_batch_was_settled() -> None:
    scheduler = scheduler_of("fifo")
    scheduler.enqueue("a", Waiting(0, 1, None, 0.0))
    for ticket in (1, 2):
        scheduler.enqueue("b", Waiting(ticket, 1, None, 1.0))
    scheduler.next(1.0)  # looks at both, and runs "a"
    scheduler.enqueue("b", Waiting(3, 5, 1, 2.0, committed=True))
    dispatch = scheduler.next(2.0).dispatch
    assert dispatch is not None
    assert ([r.ticket for r in dispatch.requests], dispatch.rows, dispatch.variant) == ([3], 5, 1)


def test_requests_leave_with_their_model() -> None:
    scheduler = scheduler_of("fair")
    scheduler.enqueue("a", Waiting(7, 1, None, 0.0, deadline=1.0))
    scheduler.enqueue("a", Waiting(8, 1, None, 0.0, committed=True))
    assert [r.ticket for r in scheduler.remove_model("a")] == [8, 7]
    assert scheduler.remove_model("a") == ()
    assert scheduler.next(9.0) == Decision(None)
    assert scheduler.depth("a") == 0
    assert scheduler.cancel("a", 7) is None
    scheduler.observe("a", None, 1, 0.1, 9.0)  # its execution ended later
    with pytest.raises(KeyError):
        scheduler.enqueue("a", Waiting(9, 1, None, 0.0))
    with pytest.raises(KeyError):
        scheduler.set_weight("a", 2.0)


def test_rows_that_fit_no_size_are_refused_when_queued_and_when_sizes_change() -> None:
    scheduler = scheduler_of("fifo")
    with pytest.raises(ValueError, match="9 rows exceed the largest compiled size 8"):
        scheduler.enqueue("b", Waiting(1, 9, None, 0.0))
    scheduler.enqueue("b", Waiting(1, 8, None, 0.0))
    with pytest.raises(ValueError, match="a request that waits for 'b' fits none of the sizes"):
        scheduler.add_model("b", ModelTerms((4,), coalesces=True, max_batch_size=4))
    assert scheduler.next(0.0).dispatch is not None


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_is_a_number_over_0(weight: float) -> None:
    scheduler = scheduler_of("fair")
    with pytest.raises(ValueError, match="weight must be a number over 0"):
        scheduler.set_weight("a", weight)


def test_new_terms_change_what_waits() -> None:
    scheduler = scheduler_of("fifo")
    scheduler.seed("a", None, 1, 1.0)
    scheduler.seed("a", None, 8, 1.0)
    for ticket in range(8):
        scheduler.enqueue("a", Waiting(ticket, 1, None, 0.0))
    scheduler.next(0.0)
    for ticket in range(8, 16):
        scheduler.enqueue("a", Waiting(ticket, 1, None, 0.0))
    scheduler.add_model("a", ModelTerms((1, 8), coalesces=True, max_batch_size=3))
    dispatch = scheduler.next(0.0).dispatch
    assert dispatch is not None
    assert [r.ticket for r in dispatch.requests] == [8, 9, 10]


@pytest.mark.parametrize("discipline", DISCIPLINE_NAMES)
def test_what_is_past_its_deadline_never_runs_committed_or_not(discipline: str) -> None:
    scheduler = scheduler_of(discipline)
    scheduler.enqueue("a", Waiting(1, 1, None, 0.0, deadline=2.0))
    scheduler.enqueue("a", Waiting(2, 1, None, 0.0, deadline=2.0, committed=True))
    scheduler.enqueue("b", Waiting(3, 1, None, 0.0, deadline=2.0))
    scheduler.enqueue("b", Waiting(4, 1, None, 0.0))
    decision = scheduler.next(2.0)
    assert sorted(r.ticket for _, r in decision.dropped) == [1, 2, 3]
    assert decision.dispatch is not None
    assert [r.ticket for r in decision.dispatch.requests] == [4]


def test_learned_costs_leave_with_the_model() -> None:
    scheduler = scheduler_of("fifo")
    scheduler.seed("a", None, 8, 0.5)
    assert scheduler.cost.measured("a", None, 8) == 0.5
    scheduler.remove_model("a")
    assert scheduler.cost.measured("a", None, 8) is None
