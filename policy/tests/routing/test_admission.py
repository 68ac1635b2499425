from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactant_policy.routing.admission import admit


def test_below_nine_tenths_everyone_is_let_in() -> None:
    assert admit(total=899, cap=1000, mine=899, connections=100)


def test_the_last_tenth_is_for_those_below_their_share() -> None:
    assert not admit(total=900, cap=1000, mine=500, connections=2)
    assert admit(total=900, cap=1000, mine=499, connections=2)


def test_at_the_cap_nobody_is() -> None:
    assert not admit(total=1000, cap=1000, mine=0, connections=1)


@given(cap=st.integers(1, 2000))
def test_one_connection_alone_gets_all_but_the_last_tenth(cap: int) -> None:
    taken = [count for count in range(cap) if admit(count, cap, count, 1)]
    assert taken == [count for count in range(cap) if count * 10 < cap * 9 or count * 2 < cap]
    assert admit(len(taken), cap, 0, 2) == (len(taken) < cap)


@given(cap=st.integers(20, 2000), newcomers=st.integers(1, 8))
def test_one_greedy_connection_leaves_the_last_tenth_to_the_others(cap: int, newcomers: int) -> None:
    greedy = 0
    while admit(newcomers + greedy, cap, greedy, newcomers + 1):
        greedy += 1
    # Each newcomer has one request in flight and wants another.
    assert newcomers + greedy <= max(0.9 * cap + 1, cap / (newcomers + 1) + newcomers + 1)
    assert admit(newcomers + greedy, cap, 1, newcomers + 1)
