"""When a change of the fleet is acted on: settled joins at once, losses only when they last."""

from __future__ import annotations

from dataclasses import replace

from reactant_policy.placement.membership import (
    LEAVE_SECONDS,
    PATIENCE_SECONDS,
    QUIET_SECONDS,
    RETURN_SECONDS,
    Fleet,
    Membership,
)


def fleet(**models: str) -> Fleet:
    """Models with the workers that have each, a letter a worker; `all=` is those in reach of a, b, c."""
    workers = frozenset(models.pop("all", "abc"))
    eligible = {model: tuple(sorted(has)) for model, has in models.items()}
    return Fleet(workers, eligible, away=frozenset("abc") - workers)


def placed(on: Fleet) -> Membership:
    membership = Membership()
    membership.placed(on)
    return membership


BEFORE = fleet(m="abc", n="abc")


def test_nothing_changed() -> None:
    membership = placed(BEFORE)
    assert not membership.due(0, BEFORE)
    assert not membership.due(1e6, fleet(m="abc", n="abc"))


def test_a_worker_that_is_back_in_time_changes_nothing() -> None:
    membership = placed(BEFORE)
    without = fleet(all="ab", m="ab", n="ab")
    assert not membership.due(0, without)
    in_doubt = [membership.in_doubt]
    assert not membership.due(LEAVE_SECONDS - 0.1, without)
    assert not membership.due(LEAVE_SECONDS, fleet(m="abc", n="abc"))
    in_doubt.append(membership.in_doubt)
    assert in_doubt == [True, False]
    assert not membership.due(1e6, fleet(m="abc", n="abc"))


def test_a_worker_that_stays_away_is_gone_and_its_return_a_join() -> None:
    membership = placed(BEFORE)
    without = fleet(all="ab", m="ab", n="ab")
    assert not membership.due(0, without)
    assert membership.due(LEAVE_SECONDS, without)
    membership.placed(without)
    assert not membership.due(LEAVE_SECONDS + 1, without)
    assert not membership.due(100, BEFORE)
    assert membership.due(100 + QUIET_SECONDS, BEFORE)


def test_one_that_is_seen_loading_is_waited_for_longer_but_not_for_ever() -> None:
    membership = placed(BEFORE)
    away = fleet(all="ab", m="ab", n="ab")
    loading = replace(away, returning=frozenset("c"))
    assert not membership.due(0, away)
    assert not membership.due(LEAVE_SECONDS - 1, loading)
    assert not membership.due(RETURN_SECONDS - 1, loading)
    assert membership.due(RETURN_SECONDS - 1, away)
    assert membership.due(RETURN_SECONDS, loading)


def test_one_that_was_taken_off_the_list_is_not_waited_for() -> None:
    membership = placed(BEFORE)
    without = replace(fleet(all="ab", m="ab", n="ab"), away=frozenset())
    assert not membership.due(0, without)
    assert membership.due(QUIET_SECONDS, without)


def test_a_new_model_waits_until_the_loading_is_quiet() -> None:
    membership = placed(BEFORE)
    one, two = fleet(m="abc", n="abc", o="a"), fleet(m="abc", n="abc", o="ab")
    assert not membership.due(0, one)
    assert not membership.due(0.75, two)
    assert not membership.due(1.5, two)
    assert membership.due(1.75, two)


def test_but_not_for_ever() -> None:
    membership = placed(BEFORE)
    times = [step * 0.5 for step in range(20)]
    due = [membership.due(now, fleet(m="abc", n="abc", **{f"o{now}": "a"})) for now in times]
    assert times[due.index(True)] == PATIENCE_SECONDS


def test_a_model_that_left_one_worker_and_one_that_left_all() -> None:
    membership = placed(BEFORE)
    assert not membership.due(0, fleet(m="abc"))
    assert not membership.due(5, fleet(m="abc"))
    assert not membership.due(5, fleet(m="abc", n=""))
    assert not membership.due(50, fleet(m="abc", n=""))
    assert not membership.due(60, fleet(m="ab", n=""))
    assert membership.due(60 + QUIET_SECONDS, fleet(m="ab", n=""))


def test_a_model_loaded_while_a_worker_is_away_is_placed_all_the_same() -> None:
    membership = placed(BEFORE)
    without = fleet(all="ab", m="ab", n="ab", o="ab")
    assert not membership.due(0, without)
    assert membership.due(QUIET_SECONDS, without)


def test_a_change_taken_back_is_none() -> None:
    membership = placed(BEFORE)
    assert not membership.due(0, fleet(m="abc", n="abc", o="a"))
    assert not membership.due(0.5, fleet(m="abc", n="abc"))
    assert not membership.due(50, fleet(m="abc", n="abc"))
