from __future__ import annotations

import pytest

from reactant_gateway.router import Router
from reactant_policy.routing.packed import Packed
from reactant_policy.routing.spread import LeastOutstanding, RoundRobin
from reactant_policy.routing.table import ModelView, RoutingTable, WorkerView, build_table


def _table(*workers: str, models: tuple[str, ...] = ("m",), seconds: float | None = 0.125) -> RoutingTable:
    views = {name: ModelView(name, "READY", "", True, "x", 0, 8, seconds) for name in models}
    return build_table(WorkerView(worker, True, views) for worker in workers)


def _router(basis: str = "items") -> Router:
    router = Router(LeastOutstanding(), basis)
    router.swap(_table("a", "b", "c"))
    return router


def _choose(
    router: Router, *, tried: tuple[str, ...] = (), holders: frozenset[str] | None = None
) -> str | None:
    route = router.find("m")
    assert route is not None
    return router.choose(route, tried, holders)


def test_find() -> None:
    router = Router(RoundRobin(), "requests")
    assert router.find("m") is None
    router.swap(_table("a"))
    assert router.find("m") is router.table.routes["m"]
    assert router.find("other") is None


def test_choose_leaves_out_who_had_it_and_who_does_not_hold_the_region() -> None:
    router = _router()
    assert _choose(router, tried=("a", "b")) == "c"
    assert _choose(router, holders=frozenset({"b", "elsewhere"})) == "b"
    assert _choose(router, tried=("b",), holders=frozenset({"b"})) is None
    assert _choose(router, holders=frozenset()) is None
    assert _choose(router, tried=("a", "b", "c")) is None


def test_choose_of_a_route_without_candidates() -> None:
    router = Router(RoundRobin(), "requests")
    router.swap(build_table([WorkerView("a", False, {"m": ModelView("m", "READY")})]))
    assert _choose(router) is None


def test_load_follows_what_begins_and_ends() -> None:
    router = _router()
    router.begin("a", "m", 4.0)
    router.begin("b", "m", 1.0)
    router.begin("b", "m", 1.0)
    assert dict(router.load) == {"a": 4.0, "b": 2.0, "c": 0.0}
    assert [router.outstanding(w) for w in ("a", "b", "c", "other")] == [1, 2, 0, 0]
    assert _choose(router) == "c"
    assert _choose(router, tried=("c",)) == "b"
    router.end("a", "m", 4.0)
    assert _choose(router, tried=("c",)) == "a"
    assert dict(router.routed) == {("a", "m"): 1, ("b", "m"): 2}
    assert dict(router.replica_outstanding) == {("a", "m"): 0, ("b", "m"): 2}


def test_an_idle_worker_has_no_rounding_left_over() -> None:
    router = _router()
    work = (0.1, 0.2, 0.3)
    for w in work:
        router.begin("a", "m", w)
    for w in work:
        router.end("a", "m", w)
    assert router.load["a"] == 0.0


def test_work_by_basis() -> None:
    route = _router().find("m")
    assert route is not None
    assert [_router(basis).work(route, 4) for basis in ("requests", "items", "compute")] == [1.0, 4.0, 0.5]
    assert [_router(basis).counts_items for basis in ("requests", "items", "compute")] == [False, True, True]
    with pytest.raises(ValueError, match="'rows': accepted are requests, items, compute"):
        Router(RoundRobin(), "rows")


def test_an_unmeasured_model_costs_the_fleet_mean() -> None:
    router = _router("compute")
    measured = ModelView("m", "READY", "", True, "x", 0, 8, 0.125)
    unmeasured = ModelView("n", "READY", "", True, "x", 0, 8, None)
    router.swap(build_table([WorkerView("a", True, {"m": measured, "n": unmeasured})]))
    route = router.find("n")
    assert route is not None
    assert router.work(route, 4) == 0.5


def test_counters_of_what_left_go_once_nothing_is_in_flight() -> None:
    router = _router()
    router.begin("c", "m", 1.0)
    router.swap(_table("a", "b"))
    assert router.load["c"] == 1.0
    router.end("c", "m", 1.0)
    router.swap(_table("a", "b", models=("n",)))
    assert dict(router.load) == {"a": 0.0, "b": 0.0}
    assert not router.routed
    assert not router.replica_outstanding


def test_a_swap_that_only_changes_costs_keeps_every_count() -> None:
    router = _router()
    router.begin("a", "m", 1.0)
    router.swap(_table("a", "b", "c", seconds=0.25))
    assert dict(router.routed) == {("a", "m"): 1}
    assert router.outstanding("a") == 1
    route = router.find("m")
    assert route is not None
    assert route.seconds_per_item == 0.25


def test_every_swap_is_told_also_one_with_the_same_names() -> None:
    router = _router()
    told: list[RoutingTable] = []
    router.on_swap.append(lambda table: told.append(router.table))
    tables = [_table("a", "b", "c", seconds=0.25), _table("a")]
    for table in tables:
        router.swap(table)
    assert told == tables


def test_arrivals_are_counted_while_the_rule_is_told_of_requests() -> None:
    router = _router()
    route = router.find("m")
    assert route is not None
    assert (router.follows_requests, router.arrived(route, 4), dict(router.arrivals)) == (False, 0, {})
    counts = []
    for spread, basis in ((Packed(), "requests"), (LeastOutstanding(), "requests"), (Packed(), "items")):
        router.follow(spread, basis)
        counts.append(router.counts_items)
    assert counts == [True, False, True]
    assert [router.arrived(route, items) for items in (4, None, 99, 0)] == [4, 1, 8, 0]
    assert dict(router.arrivals) == {"m": 13}
    router.follow(RoundRobin(), "compute")
    assert (router.arrived(route, 4), dict(router.arrivals)) == (0, {"m": 13})
    router.swap(_table("a", models=("n",)))
    assert not router.arrivals


def test_the_rule_is_told_what_began_and_ended() -> None:
    router, packed = _router(), Packed()
    router.begin("a", "m", 1.0)
    router.follow(packed, "items")
    router.begin("a", "m", 4.0, 4)
    router.begin("b", "m", 2.0, 2)
    router.end("a", "m", 1.0)
    assert (packed.in_flight("m", "a"), packed.in_flight("m", "b")) == (4, 2)
    router.end("a", "m", 4.0, 4)
    router.swap(_table("b", models=("n",)))
    assert (packed.in_flight("m", "a"), packed.in_flight("m", "b")) == (0, 2)
    router.end("b", "m", 2.0, 2)
    router.swap(_table("b", models=("o",)))
    assert packed.in_flight("m", "b") == 0
    assert not packed._models


def test_the_quantum_follows_the_largest_batch_of_the_table() -> None:
    router = _router()
    router.follow(Packed(policy="fill_rr"), "items")
    chosen = []
    for _ in range(16):
        worker = _choose(router)
        assert worker is not None
        router.begin(worker, "m", 1.0, 1)
        chosen.append(worker)
    assert chosen == ["a"] * 8 + ["b"] * 8
