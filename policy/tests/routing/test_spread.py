from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactant_policy.routing.spread import SPREADS, LeastOutstanding, RoundRobin


def test_round_robin_goes_round_for_each_model() -> None:
    spread = RoundRobin()
    chosen = [spread.choose(model, ("a", "b", "c"), {}) for model in "mmnmnm"]
    assert [c for c, model in zip(chosen, "mmnmnm", strict=True) if model == "m"] == ["a", "b", "c", "a"]
    assert [c for c, model in zip(chosen, "mmnmnm", strict=True) if model == "n"] == ["b", "c"]


def test_round_robin_starts_new_models_on_different_workers() -> None:
    spread = RoundRobin()
    assert Counter(spread.choose(f"m{i}", ("a", "b", "c"), {}) for i in range(9)) == {"a": 3, "b": 3, "c": 3}


def test_round_robin_keeps_its_order_when_candidates_come_and_go() -> None:
    spread = RoundRobin()
    rounds = [("a", "b", "c"), ("a", "b", "c"), ("a", "c"), ("a", "b", "c"), ("b", "c"), ("a", "b", "c", "d")]
    assert [spread.choose("m", candidates, {}) for candidates in rounds] == ["a", "b", "c", "a", "b", "c"]
    assert spread.choose("m", ("a", "b", "c", "d"), {}) == "d"


def test_a_dead_worker_does_not_pile_its_share_on_its_neighbour() -> None:
    spread, served = RoundRobin(), Counter[str]()
    for _ in range(300):
        first = spread.choose("m", ("a", "b", "c"), {})
        served[spread.choose("m", ("b", "c"), {}) if first == "a" else first] += 1
    assert abs(served["b"] - served["c"]) <= 2


def test_least_outstanding_takes_the_least_load() -> None:
    spread = LeastOutstanding()
    load = {"a": 2.0, "b": 0.5, "c": 1.0}
    assert [spread.choose("m", ("a", "b", "c"), load) for _ in range(3)] == ["b", "b", "b"]
    assert spread.choose("m", ("a", "c"), load) == "c"
    assert spread.choose("m", ("a", "new"), load) == "new"


def test_ties_go_round_over_all_models() -> None:
    spread = LeastOutstanding()
    load = {"a": 0.0, "b": 1.0, "c": 0.0, "d": 0.0}
    assert [spread.choose(f"m{i}", ("a", "b", "c", "d"), load) for i in range(5)] == ["a", "c", "d", "a", "c"]


@pytest.mark.parametrize("mode", sorted(SPREADS))
@settings(max_examples=50)
@given(
    calls=st.lists(
        st.tuples(st.sampled_from("mn"), st.sets(st.sampled_from("abcdef"), min_size=1)), min_size=1
    ),
    load=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2).map(float)),
)
def test_the_choice_is_a_candidate(
    mode: str, calls: list[tuple[str, set[str]]], load: dict[str, float]
) -> None:
    spread = SPREADS[mode]()
    for model, candidates in calls:
        chosen = spread.choose(model, sorted(candidates), load)
        assert chosen in candidates
        if mode == "least_outstanding":
            assert load.get(chosen, 0.0) == min(load.get(c, 0.0) for c in candidates)
