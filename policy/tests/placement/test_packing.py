from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from reactant_policy.placement.model import Knobs, WorkerRoom
from reactant_policy.placement.packing import Packing, PackingKnobs, Placeable, Repack, Trigger
from reactant_policy.routing.work import Totals

WORKERS = ("a", "b", "c", "d")


class Host:
    """A gateway in miniature: `busy` spends device time, `poll` repacks when that is due."""

    def __init__(self, workers: Iterable[str] = WORKERS, knobs: PackingKnobs | None = None) -> None:
        self.packing = Packing(knobs or PackingKnobs())
        self.workers = tuple(workers)
        self.models = tuple(f"m{number}" for number in range(8))
        self.now = 0.0
        self.items = dict.fromkeys(self.models, 0)
        self.repacks: list[Repack] = []
        self.observe()
        self.repack("start")

    def observe(self) -> None:
        totals = {model: Totals(items * 0.01, items) for model, items in self.items.items()}
        self.packing.observe(self.now, dict(self.items), {"a": totals})

    def busy(self, seconds: float, *models: str) -> None:
        """The fleet spends device time on some models."""
        self.now += 1.0
        for model in models or self.models:
            self.items[model] += round(seconds / 0.01 / len(models or self.models))
        self.observe()

    def due(self) -> Trigger | None:
        return self.packing.due(self.now, self.workers, self.models)

    def repack(self, trigger: Trigger) -> Repack:
        placeable = [Placeable(model, 10, tuple(sorted(self.workers))) for model in self.models]
        rooms = [WorkerRoom(worker) for worker in self.workers]
        self.repacks.append(self.packing.repack(self.now, placeable, rooms, trigger))
        return self.repacks[-1]

    def poll(self) -> Trigger | None:
        trigger = self.due()
        if trigger is not None:
            self.repack(trigger)
        return trigger


def test_before_the_start_nothing_is_due() -> None:
    packing = Packing(PackingKnobs())
    packing.observe(0.0, {}, {"w": {"m": Totals(0.0, 0)}})
    packing.observe(1.0, {}, {"w": {"m": Totals(5000.0, 1)}})
    assert packing.due(1.0, ["a"]) is None
    assert packing.homes == {}


def test_first_after_60_device_seconds_then_every_300() -> None:
    host = Host()
    triggers = []
    for _ in range(20):
        host.busy(40.0)
        triggers.append(host.poll())
    assert triggers == [None, "first", *[None] * 7, "compute", *[None] * 7, "compute", None, None]
    assert [round(r.compute_seconds) for r in host.repacks] == [0, 80, 320, 320]
    assert [r.wall_seconds for r in host.repacks] == [0.0, 2.0, 8.0, 8.0]


def test_without_traffic_nothing_is_ever_due() -> None:
    host = Host()
    for _ in range(1000):
        host.busy(0.0)
        assert host.due() is None
    assert host.packing.compute_seconds_left == 60.0


def test_a_repack_for_another_reason_starts_the_count_anew() -> None:
    host = Host()
    host.busy(61.0)
    assert host.poll() == "first"
    host.busy(200.0)
    host.repack("request")
    host.busy(200.0)
    assert host.due() is None
    assert host.packing.compute_seconds_left == pytest.approx(100.0, abs=0.2)
    host.busy(101.0)
    assert host.due() == "compute"
    assert host.packing.compute_seconds_left == 0.0


def test_the_first_repack_that_knows_demand_is_due_whatever_came_before() -> None:
    host = Host()
    host.busy(50.0)
    host.repack("request")
    host.busy(11.0)
    assert host.poll() == "first"


def test_a_repack_moves_models_apart_and_the_next_moves_nothing() -> None:
    host = Host()
    hot = [model for model, homes in host.packing.homes.items() if homes == ("a",)]
    assert len(hot) == 2
    for _ in range(10):
        host.busy(7.0, *hot)
    assert host.poll() == "first"
    repack = host.repacks[-1]
    assert [move.reason for move in repack.plan.moves] == ["balance"]
    assert host.packing.homes[hot[0]] != host.packing.homes[hot[1]]
    for _ in range(100):
        host.busy(7.0, *hot)
        if host.poll():
            assert host.repacks[-1].plan.moves == ()
    assert len(host.repacks) == 4


def test_membership_is_due_at_once_and_knows_who_is_there() -> None:
    host = Host()
    host.workers = ("a", "b", "c")
    assert host.poll() == "membership"
    assert {home for homes in host.packing.homes.values() for home in homes} == {"a", "b", "c"}
    assert host.due() is None


def test_a_model_that_appears_counts_as_membership_and_one_that_leaves_does_not() -> None:
    host = Host()
    host.models = (*host.models, "new")
    host.items["new"] = 0
    assert host.poll() == "membership"
    assert host.packing.homes["new"]
    host.models = host.models[1:]
    host.now += 100.0
    assert host.due() is None


def test_a_worker_that_comes_and_goes_makes_no_storm() -> None:
    host = Host()
    for second in range(1200):
        host.workers = WORKERS if second // 3 % 2 else WORKERS[1:]
        host.now += 1.0
        host.poll()
    triggers = [repack.trigger for repack in host.repacks[1:]]
    assert set(triggers) == {"membership"}
    assert 15 <= len(triggers) <= 26
    # Left in peace for a while, the next change is due at once again.
    host.workers = WORKERS
    host.now += 200.0
    host.poll()
    host.now += 200.0
    for workers in (WORKERS[1:], WORKERS):
        host.workers = workers
        assert host.poll() == "membership"
        host.now += 3.0


def test_a_worker_that_is_back_in_time_makes_no_repack() -> None:
    host = Host()
    host.workers = WORKERS[1:]
    assert host.poll() == "membership"
    host.now += 1.0
    host.workers = WORKERS
    assert host.poll() is None
    host.workers = WORKERS[1:]
    host.now += 60.0
    assert host.poll() is None


def test_knobs_can_change_while_it_runs() -> None:
    host = Host()
    host.busy(61.0)
    host.poll()
    host.busy(100.0)
    assert host.due() is None
    demand = host.packing.demand()
    host.packing.follow(PackingKnobs(rebalance_compute_seconds=50.0, halflife_compute_seconds=10.0))
    assert host.due() == "compute"
    assert host.packing.demand() == pytest.approx(demand)


def test_a_draft_changes_nothing_and_holds_all_that_the_plan_needs() -> None:
    host = Host()
    homes = host.packing.homes
    host.busy(61.0, "m0")
    draft = host.packing.draft(
        host.now, [Placeable("m0", 7, ("a",), replicas=None)], [WorkerRoom("a", 9)], "first"
    )
    assert draft.models[0].compute == pytest.approx(61.0)
    assert (draft.models[0].weight_bytes, draft.models[0].replicas) == (7, None)
    assert (draft.previous, draft.workers) == (homes, (WorkerRoom("a", 9),))
    assert draft.knobs == Knobs()
    assert host.packing.homes is homes
    assert host.due() == "first"


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_seconds_that_cannot_be_are_refused_all_at_once(value: float) -> None:
    with pytest.raises(ValueError, match=r"rebalance_compute_seconds is .*, halflife_compute_seconds is"):
        PackingKnobs(rebalance_compute_seconds=value, halflife_compute_seconds=value)
