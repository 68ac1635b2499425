from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import groupby
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactant_policy.routing.packed import FILL_MODES, FILL_POLICIES, Fill, Packed

WORKERS = ("a", "b", "c", "d")
STEPS = ("send", "send", "end", "fail", "move", "place", "succeed")


class Traffic:
    """Requests in front of a `Packed`, with the books kept a second time and in another way.

    Attributes:
        flying: (model, worker, items) of what has begun and not ended, in that order.
    """

    def __init__(self, packed: Packed, candidates: Sequence[str] = WORKERS, batch: int = 8) -> None:
        self.packed = packed
        self.candidates = tuple(candidates)
        self.batch = batch
        self.flying: deque[tuple[str, str, int]] = deque()

    def load(self) -> dict[str, float]:
        load: Counter[str] = Counter()
        for _, worker, items in self.flying:
            load[worker] += items
        return {worker: float(items) for worker, items in load.items()}

    def items(self, model: str) -> dict[str, int]:
        return {w: sum(n for m, at, n in self.flying if (m, at) == (model, w)) for w in WORKERS}

    def send(self, model: str = "m", items: int = 1, candidates: Sequence[str] | None = None) -> str:
        at = self.candidates if candidates is None else candidates
        worker = self.packed.choose(model, at, self.load(), self.batch, item_work=1.0)
        self.packed.began(model, worker, items)
        self.flying.append((model, worker, items))
        return worker

    def end(self, index: int = 0) -> None:
        request = self.flying[index]
        del self.flying[index]
        self.packed.ended(*request)

    def end_all(self) -> None:
        while self.flying:
            self.end()


def placed(*homes: str, mode: str = "run", factor: float = 1.0, policy: str = "fill_least") -> Traffic:
    packed = Packed(Fill(mode, factor), policy=policy)
    packed.assign({"m": homes})
    return Traffic(packed)


def runs(chosen: Sequence[str]) -> list[tuple[str, int]]:
    return [(worker, len(list(group))) for worker, group in groupby(chosen)]


# --- run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", FILL_POLICIES)
def test_a_run_spends_a_quantum_on_one_replica_and_opens_the_next(policy: str) -> None:
    traffic = placed("a", "b", "c", policy=policy)
    chosen = runs([traffic.send() for _ in range(48)])
    assert [length for _, length in chosen] == [8] * 6
    assert {worker for worker, _ in chosen[:3]} == {worker for worker, _ in chosen[3:]} == {"a", "b", "c"}


@settings(max_examples=30)
@given(
    factor=st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.0]),
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=40),
    homes=st.integers(2, 4),
)
def test_a_run_of_requests_of_any_size_ends_with_the_one_that_completes_the_quantum(
    factor: float, sizes: list[int], homes: int
) -> None:
    traffic, replicas = placed(*WORKERS[:homes], factor=factor), WORKERS[:homes]
    quantum = traffic.packed.quantum("m", 8)
    assert quantum == 8 * factor
    spent, at = 0, ""
    for items in sizes:
        before = traffic.items("m")
        worker = traffic.send(items=items)
        if 0 < spent < quantum:
            assert worker == at
        else:
            assert before[worker] == min(before[w] for w in replicas)
            spent = 0
        spent, at = spent + items, worker


def test_a_run_ends_when_nothing_of_the_model_is_in_flight() -> None:
    traffic = placed("a", "b")
    chosen = []
    for _ in range(6):
        chosen.append(traffic.send())
        traffic.end()
    assert chosen in (["a", "b"] * 3, ["b", "a"] * 3)
    # Of the model: what others have in flight keeps no run open, and an answer elsewhere ends none.
    traffic.packed.began("other", chosen[-1], 5)
    first = traffic.send()
    assert first != chosen[-1]
    traffic.send()
    traffic.end()
    assert traffic.send() == first


@pytest.mark.parametrize("elsewhere", [0, 1, 4])
def test_a_run_ends_when_its_replica_is_a_quantum_behind(elsewhere: int) -> None:
    traffic = placed("a", "b", policy="fill_rr")
    assert runs([traffic.send() for _ in range(16)]) == [("a", 8), ("b", 8)]
    # "a" answers one, "b" all but a few: from 7 against those few the run goes on up to a lead of 8.
    for _ in range(8 - elsewhere):
        traffic.end(8)
    traffic.end()
    assert runs([traffic.send() for _ in range(elsewhere + 2)]) == [("a", elsewhere + 1), ("b", 1)]
    assert traffic.items("m")["a"] - elsewhere == 8


def test_a_turn_of_a_replica_that_is_a_quantum_behind_is_passed_over() -> None:
    traffic = placed("a", "b", "c", policy="fill_rr")
    assert runs([traffic.send() for _ in range(24)]) == [("a", 8), ("b", 8), ("c", 8)]
    while len(traffic.flying) > 8:
        traffic.end(8)
    assert runs([traffic.send() for _ in range(16)]) == [("b", 8), ("c", 8)]


@settings(max_examples=40)
@given(
    policy=st.sampled_from(FILL_POLICIES),
    factor=st.sampled_from([0.5, 1.0, 2.0]),
    steps=st.lists(st.tuples(st.sampled_from("mmmn"), st.integers(1, 8), st.integers(0, 5)), max_size=40),
    order=st.randoms(use_true_random=False),
)
def test_a_run_goes_on_and_ends_as_documented(
    policy: str, factor: float, steps: list[tuple[str, int, int]], order: Random
) -> None:
    traffic, replicas = placed("a", "b", "c", factor=factor, policy=policy), "abc"
    quantum, run, spent = 8 * factor, "", 0
    for model, items, answers in steps:
        before, load = traffic.items("m"), traffic.load()
        worker = traffic.send(model, items)
        if model == "m":
            fewest = min(before[w] for w in replicas)
            goes_on = sum(before.values()) > 0 and spent < quantum and before[run] - fewest < quantum
            if goes_on:
                assert worker == run
            else:
                spent = 0
                if policy == "fill_least":
                    least = min(load.get(w, 0.0) for w in replicas)
                    assert load.get(worker, 0.0) == least or load[worker] - least < quantum
                elif run:
                    after = replicas.index(run) + 1
                    turns = replicas[after:] + replicas[:after]
                    assert worker == next(w for w in turns if before[w] - fewest < quantum)
            run, spent = worker, spent + items
        for _ in range(min(answers, len(traffic.flying))):
            traffic.end(order.randrange(len(traffic.flying)))


# --- which replica is opened -----------------------------------------------------------------------------


@given(
    factor=st.sampled_from([0.5, 1.0, 2.0]),
    steps=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4)), min_size=20, max_size=80),
    order=st.randoms(use_true_random=False),
)
def test_replicas_that_are_equally_busy_get_the_same_to_within_a_run(
    factor: float, steps: list[tuple[int, int]], order: Random
) -> None:
    traffic, got = placed("a", "b", "c", factor=factor), Counter(a=0, b=0, c=0)
    quantum = 8 * factor
    for items, answers in steps:
        # With less than a run in flight no worker is busier than another by one.
        while traffic.flying and sum(n for _, _, n in traffic.flying) + items >= quantum:
            traffic.end(order.randrange(len(traffic.flying)))
        got[traffic.send(items=items)] += items
        # A run may exceed its quantum by what is left of the request that completes it.
        assert max(got.values()) - min(got.values()) <= quantum - 1 + 8
        for _ in range(min(answers, len(traffic.flying))):
            traffic.end(order.randrange(len(traffic.flying)))


def test_what_a_replica_missed_long_ago_is_not_made_up_for() -> None:
    packed = Packed()
    packed.assign({"m": ("a", "b")})
    for _ in range(10):
        assert packed.choose("m", WORKERS, {"a": 99.0}, 8, item_work=1.0) == "b"
        packed.began("m", "b", 8)
        packed.ended("m", "b", 8)
    chosen = []
    for _ in range(4):
        chosen.append(packed.choose("m", WORKERS, {}, 8, item_work=1.0))
        packed.began("m", chosen[-1], 8)
        packed.ended("m", chosen[-1], 8)
    assert chosen == ["a", "a", "b", "a"]


def test_fill_least_opens_where_the_worker_has_least_of_all_models() -> None:
    packed = Packed()
    packed.assign({"m": ("a", "b", "c")})
    chosen = [packed.choose("m", WORKERS, {"a": 3.0, "b": 0.5, "c": 1.0, "d": 0.0}, 8) for _ in range(3)]
    assert chosen == ["b"] * 3
    assert packed.choose("m", WORKERS, {"a": 3.0, "b": 4.0}, 8) == "c"


def test_fill_rr_opens_in_turn_whatever_the_load() -> None:
    packed = Packed(policy="fill_rr")
    packed.assign({"m": ("a", "c", "d")})
    chosen = [packed.choose("m", WORKERS, {"a": 9.0, "c": 1.0}, 8) for _ in range(7)]
    assert chosen == ["a", "c", "d", "a", "c", "d", "a"]


@pytest.mark.parametrize("policy", FILL_POLICIES)
@pytest.mark.parametrize("in_flight", [1, 2, 6, 20])
def test_clients_that_batch_to_the_maximum_close_a_run_with_every_request(
    policy: str, in_flight: int
) -> None:
    traffic = placed("a", "b", "c", policy=policy)
    chosen: list[str] = []
    for _ in range(120):
        chosen.append(traffic.send(items=8))
        if len(traffic.flying) == in_flight:
            traffic.end()
    assert all(length == 1 for _, length in runs(chosen))
    assert set(Counter(chosen).values()) == {40}


@pytest.mark.parametrize(("factor", "length"), [(0.5, 1), (1.0, 1), (3.0, 3)])
def test_a_model_without_a_batch_axis_counts_a_request_as_one(factor: float, length: int) -> None:
    traffic = placed("a", "b", factor=factor)
    traffic.batch = 0
    assert traffic.packed.quantum("m", 0) == length
    assert [n for _, n in runs([traffic.send() for _ in range(12)])] == [length] * (12 // length)


# --- spread and inflight ---------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    policy=st.sampled_from(FILL_POLICIES),
    steps=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3)), min_size=1, max_size=60),
)
def test_spread_sends_to_the_replica_with_the_fewest_items(policy: str, steps: list[tuple[int, int]]) -> None:
    traffic = placed("a", "b", "c", mode="spread", policy=policy)
    for items, answered in steps:
        before = traffic.items("m")
        worker = traffic.send(items=items)
        assert before[worker] == min(before[w] for w in "abc")
        for _ in range(min(answered, len(traffic.flying))):
            traffic.end(len(traffic.flying) // 2)


@pytest.mark.parametrize("policy", FILL_POLICIES)
def test_spread_evens_out_and_takes_turns_on_ties(policy: str) -> None:
    traffic = placed("a", "b", "c", mode="spread", policy=policy)
    assert set(Counter(traffic.send() for _ in range(30)).values()) == {10}
    traffic.end_all()
    chosen = []
    for _ in range(9):
        chosen.append(traffic.send())
        traffic.end()
    assert set(Counter(chosen).values()) == {3}


def test_inflight_counts_what_is_in_flight_and_so_can_park_a_model_on_one_worker() -> None:
    traffic = placed("a", "b", mode="inflight")
    assert [n for _, n in runs([traffic.send() for _ in range(16)])] == [8, 8]
    traffic.end_all()
    parked = set()
    for _ in range(100):
        parked.add(traffic.send(items=3))
        if len(traffic.flying) == 3:
            traffic.end()
    assert len(parked) == 1


@settings(max_examples=30)
@given(
    policy=st.sampled_from(FILL_POLICIES),
    steps=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3)), min_size=1, max_size=60),
)
def test_inflight_moves_on_once_a_quantum_is_in_flight(policy: str, steps: list[tuple[int, int]]) -> None:
    traffic, at = placed("a", "b", "c", mode="inflight", policy=policy), ""
    for items, answered in steps:
        before = traffic.items("m")
        worker = traffic.send(items=items)
        if at and before[at] < 8:
            assert worker == at
        elif any(before[w] < 8 for w in "abc"):
            assert before[worker] < 8
        at = worker
        for _ in range(min(answered, len(traffic.flying))):
            traffic.end()


@pytest.mark.parametrize("policy", FILL_POLICIES)
def test_inflight_opens_no_replica_that_is_full_while_another_has_room(policy: str) -> None:
    packed = Packed(Fill("inflight"), policy=policy)
    packed.assign({"m": ("a", "b", "c")})
    for worker, items in (("a", 9), ("b", 8), ("c", 7)):
        packed.began("m", worker, items)
    load = {"a": 0.0, "b": 0.0, "c": 50.0}
    assert packed.choose("m", WORKERS, load, 8) == "c"
    packed.began("m", "c", 1)
    # All are full: by policy again.
    assert packed.choose("m", WORKERS, load, 8) == "a"


# --- who is a replica ------------------------------------------------------------------------------------


def test_placed_replicas_come_first_and_others_when_none_is_left() -> None:
    traffic = placed("a", "b")
    assert {traffic.send() for _ in range(32)} == {"a", "b"}
    assert {traffic.send(candidates=("b", "c")) for _ in range(32)} == {"b"}
    assert {traffic.send(candidates=("c", "d")) for _ in range(32)} == {"c", "d"}
    traffic.end_all()
    assert {traffic.send() for _ in range(32)} == {"a", "b"}
    traffic.packed.assign({"m": ("d",), "n": ("a",)})
    assert {traffic.send() for _ in range(32)} == {"d"}


@pytest.mark.parametrize("policy", FILL_POLICIES)
@pytest.mark.parametrize("mode", FILL_MODES)
def test_before_a_placement_the_whole_fleet_serves_evenly(mode: str, policy: str) -> None:
    traffic = Traffic(Packed(Fill(mode), policy=policy))
    for round_ in range(40):
        for model in range(12):
            traffic.send(f"m{model}")
        if round_ % 2:
            for _ in range(12):
                traffic.end()
    load = traffic.load()
    assert set(load) == set(WORKERS)
    assert max(load.values()) <= 1.5 * min(load.values())


def test_models_that_start_on_idle_workers_start_on_different_ones() -> None:
    packed = Packed()
    assert Counter(packed.choose(f"m{i}", WORKERS, {}, 8) for i in range(12)) == dict.fromkeys(WORKERS, 3)


def test_a_run_whose_replica_leaves_or_cannot_take_a_request_moves_on() -> None:
    traffic = placed("a", "b", "c")
    first = traffic.send()
    others = tuple(worker for worker in WORKERS if worker != first)
    second = traffic.send(candidates=others)
    assert second != first
    # It is a run of its own, which goes on with all candidates back.
    assert [traffic.send() for _ in range(7)] == [second] * 7
    assert traffic.send() != second


# --- the books -------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    policy=st.sampled_from(FILL_POLICIES),
    modes=st.lists(st.sampled_from(FILL_MODES), min_size=2, max_size=2),
    factor=st.sampled_from([0.1, 1.0, 2.5]),
    data=st.data(),
)
def test_the_books_are_exact_whatever_comes_and_goes(
    policy: str, modes: list[str], factor: float, data: st.DataObject
) -> None:
    packed = Packed(Fill(modes[0], factor), {"n": Fill(modes[1], factor)}, policy)
    homes: dict[str, tuple[str, ...]] = {}
    traffic = Traffic(packed)
    some = st.sets(st.sampled_from(WORKERS), min_size=1).map(lambda s: tuple(sorted(s)))
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=50)):
        if step == "send":
            model = data.draw(st.sampled_from("mn"))
            worker = traffic.send(model, data.draw(st.integers(0, 9)))
            left = set(homes.get(model, ())) & set(traffic.candidates)
            assert worker in (left or traffic.candidates)
        elif step == "end" and traffic.flying:
            traffic.end(data.draw(st.integers(0, len(traffic.flying) - 1)))
        elif step == "fail" and traffic.flying:
            model, worker, items = traffic.flying[-1]
            traffic.end(len(traffic.flying) - 1)
            rest = tuple(w for w in traffic.candidates if w != worker)
            if rest:
                assert traffic.send(model, items, rest) in rest
        elif step == "move":
            traffic.candidates = data.draw(some)
        elif step == "place":
            homes = {"m": data.draw(some)}
            traffic.packed.assign(homes)
        elif step == "succeed":
            successor = Packed(Fill(modes[1], factor), policy=policy)
            successor.assign(homes)
            successor.adopt(traffic.packed)
            traffic.packed = successor
        for model in "mn":
            assert {w: traffic.packed.in_flight(model, w) for w in WORKERS} == traffic.items(model)
    traffic.end_all()
    traffic.packed.retain(())
    assert not traffic.packed._models


def test_a_run_is_spent_by_what_goes_to_its_replica_alone() -> None:
    traffic = placed("a", "b")
    run = traffic.send()
    traffic.packed.began("m", "b" if run == "a" else "a", 7)
    assert [traffic.send() for _ in range(7)] == [run] * 7


def test_what_is_taken_over_replaces_what_was_counted() -> None:
    mine, theirs = Packed(), Packed()
    for packed, model in ((mine, "m"), (theirs, "n")):
        packed.began(model, "a", 3)
    mine.adopt(theirs)
    assert (mine.in_flight("m", "a"), mine.in_flight("n", "a")) == (0, 3)
    # By value: what ends is told to one of the two.
    mine.ended("n", "a", 3)
    assert theirs.in_flight("n", "a") == 3
    mine.retain(())
    assert not mine._models


def test_what_is_in_flight_is_not_forgotten_with_its_model() -> None:
    traffic = placed("a", "b")
    worker = traffic.send(items=3)
    traffic.packed.retain(())
    assert traffic.packed.in_flight("m", worker) == 3
    traffic.end()
    traffic.packed.retain(("m",))
    assert set(traffic.packed._models) == {"m"}
    traffic.packed.retain(("n",))
    assert not traffic.packed._models
    assert traffic.packed.in_flight("m", worker) == 0


# --- settings --------------------------------------------------------------------------------------------


def test_settings_change_while_requests_are_in_flight() -> None:
    packed = Packed()
    packed.assign({"m": ("a", "b"), "n": ("a", "b")})
    traffic = Traffic(packed)
    run = traffic.send()
    packed.follow(Fill(), {"m": Fill("spread")}, "fill_least")
    assert packed.fill("m") == Fill("spread")
    assert traffic.send() != run
    assert len(runs([traffic.send() for _ in range(8)])) == 8
    packed.follow(Fill("run", 2.0), {}, "fill_rr")
    assert packed.quantum("m", 8) == packed.quantum("n", 8) == 16
    assert [n for _, n in runs([traffic.send() for _ in range(32)])] == [16, 16]
    assert traffic.packed.in_flight("m", "a") + traffic.packed.in_flight("m", "b") == len(traffic.flying)


def test_settings_that_are_not_accepted_are_named_and_change_nothing() -> None:
    with pytest.raises(ValueError, match="fill mode 'runs': accepted are run, spread, inflight"):
        Fill("runs")
    for factor in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="accepted is a number above 0"):
            Fill("run", factor)
    packed = Packed(Fill("spread"))
    with pytest.raises(ValueError, match="routing policy 'rr': accepted are fill_least, fill_rr"):
        packed.follow(Fill(), {}, "rr")
    assert packed.fill("m") == Fill("spread")
