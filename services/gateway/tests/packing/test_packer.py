"""When models are placed, and what a running gateway takes from it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from services.gateway.tests.packing.stand import Stand, stand

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.errors import FailedPrecondition
from reactant_core.packing import packer as packer_module
from reactant_core.testing import async_test, eventually
from reactant_policy.placement import engine
from reactant_policy.placement.membership import LEAVE_SECONDS, QUIET_SECONDS


def spread_evenly(made: Stand) -> bool:
    """Each model has one home and each worker one model."""
    return sorted(made.homes.values()) == [("a",), ("b",), ("c",), ("d",)]


@async_test
async def test_placed_before_the_first_request() -> None:
    async with stand() as made:
        assert spread_evenly(made)
        assert made.repacks == {"start": 1}
        for model, homes in made.homes.items():
            route = made.router.find(model)
            assert route is not None
            assert made.router.choose(route, (), None) == homes[0]
            assert made.router.choose(route, homes, None) not in homes


@async_test
async def test_placed_when_the_first_worker_comes() -> None:
    made = Stand("ab", {"m": 1})
    for name in "ab":
        made.change(name, available=False)
    running = asyncio.create_task(made.packer.run())
    await made.packer.settled()
    assert (made.homes, made.repacks) == ({}, {})
    with pytest.raises(FailedPrecondition, match="no worker takes placements"):
        await made.packer.repack()
    made.change("b", available=True)
    await eventually(lambda: made.homes == {"m": ("b",)})
    assert made.repacks == {"start": 1}
    running.cancel()


@async_test
async def test_load_that_was_measured_moves_models() -> None:
    async with stand(models=dict.fromkeys("mnopq", 10), first_rebalance_compute_seconds=60) as made:
        doubled = next(homes for homes in made.homes.values() if list(made.homes.values()).count(homes) > 1)
        pair = [model for model, homes in made.homes.items() if homes == doubled]
        cost = {model: 0.8 if model in pair else 0.1 for model in "mnopq"}
        await made.ticks()
        for _ in range(60):
            made.serve(1.0, **cost)
            await made.ticks(1)
        await eventually(lambda: "first" in made.repacks)
        assert made.homes[pair[0]] != made.homes[pair[1]]
        assert made.compacted
        status = made.steering.status()
        assert status.last is not None
        assert {move.model for move in status.last.plan.moves} & set(pair)
        assert max(worker.compute for worker in status.workers) < 1.1


@async_test
async def test_a_worker_that_is_back_soon_changes_nothing_and_one_that_is_not_one_placement_each_way() -> (
    None
):
    async with stand() as made:
        before = made.homes
        made.change("b", available=False)
        await made.ticks()
        made.clock.advance(LEAVE_SECONDS / 2)
        await made.ticks()
        made.change("b", available=True)
        await made.ticks()
        made.clock.advance(10 * LEAVE_SECONDS)
        await made.ticks()
        assert (made.homes, made.repacks) == (before, {"start": 1})

        made.change("b", available=False)
        await made.ticks()
        made.clock.advance(LEAVE_SECONDS)
        await eventually(lambda: made.repacks == {"start": 1, "membership": 1})
        assert all("b" not in homes for homes in made.homes.values())
        await made.ticks()
        made.change("b", available=True)
        await made.ticks()
        made.clock.advance(QUIET_SECONDS)
        await eventually(lambda: made.repacks == {"start": 1, "membership": 2})
        await made.ticks()
        made.clock.advance(100)
        await made.ticks()
        assert made.repacks == {"start": 1, "membership": 2}


@async_test
async def test_no_placement_for_its_traffic_while_a_worker_may_come_back() -> None:
    async with stand(first_rebalance_compute_seconds=1) as made:
        made.change("b", available=False)
        await made.ticks()
        for _ in range(8):
            made.serve(1.0, m=0.5)
            await made.ticks(1)
        await made.ticks()
        assert made.repacks == {"start": 1}
        made.change("b", available=True)
        await eventually(lambda: made.repacks == {"start": 1, "first": 1})


@async_test
async def test_an_answer_is_given_once() -> None:
    async with stand() as made:
        first = await made.packer.repack()
        second = await made.packer.repack()
        assert first is not second
        assert made.packer._waiting == []


@async_test
async def test_models_that_come_and_go() -> None:
    async with stand() as made:
        for worker in "abcd":
            made.load("new", worker)
            await made.ticks(2)
        assert "new" not in made.homes
        made.clock.advance(QUIET_SECONDS)
        await eventually(lambda: len(made.homes.get("new", ())) == 1)
        assert made.repacks == {"start": 1, "membership": 1}
        for worker in "abcd":
            made.change(worker, models={n: m for n, m in made.views[worker].models.items() if n != "new"})
        await made.ticks()
        made.clock.advance(100)
        await made.ticks()
        assert made.repacks == {"start": 1, "membership": 1}
        assert [model.name for model in made.steering.status().models] == ["m", "n", "o", "p"]


@async_test
async def test_a_model_on_some_workers_only_is_placed_there_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with stand() as made:
        made.load("some", "cd")
        await made.ticks()
        made.clock.advance(QUIET_SECONDS)
        await eventually(lambda: made.homes.get("some", ("",))[0] in "cd")
        await made.packer.repack()
        assert caplog.text.count("placed on those that have them: some (2 of 4)") == 1
        assert any("some (2 of 4)" in warning for warning in made.steering.status().warnings)


@async_test
async def test_a_worker_of_another_discipline_gets_no_models(caplog: pytest.LogCaptureFixture) -> None:
    async with stand("abc") as made:
        made.views["d"] = made.views["a"].__class__("d", True, made.views["a"].models, "fair")
        made.counters["d"] = {}
        made.show()
        await made.ticks()
        made.clock.advance(100)
        await made.ticks()
        await made.packer.repack()
        assert all("d" not in homes for homes in made.homes.values())
        (record,) = [
            record for record in caplog.records if "scheduler.discipline fair" in record.getMessage()
        ]
        assert record.levelname == "ERROR"
        assert any("d runs scheduler.discipline fair" in text for text in made.steering.status().warnings)


@async_test
async def test_the_mode_can_be_left_and_entered() -> None:
    async with stand(mode="round_robin") as made:
        assert (made.homes, made.repacks, made.periods) == ({}, {}, [])
        with pytest.raises(FailedPrecondition, match=r"scheduling\.mode is round_robin"):
            await made.steering.repack()
        await made.steering.set_policy({"mode": "lpt_packing"})
        await made.steering.settled()
        assert spread_evenly(made)
        assert made.periods == [1.0]
        await made.steering.set_policy({"mode": "least_outstanding"})
        await made.steering.settled()
        assert (made.homes, made.periods) == ({}, [1.0, None])
        assert not made.router.follows_requests
        assert made.steering.status().next_compute_seconds is None
        made.steering.follow(SchedulingConfig(mode="lpt_packing", default_replicas=2))
        await made.steering.settled()
        assert {len(homes) for homes in made.homes.values()} == {2}


@async_test
async def test_not_while_a_worker_is_on_another_discipline() -> None:
    async with stand(mode="round_robin") as made:
        made.change("c", discipline="fair")
        with pytest.raises(FailedPrecondition, match=r"c runs scheduler\.discipline fair"):
            await made.steering.set_policy({"mode": "lpt_packing"})
        assert made.packer.planner is None
        assert made.steering.status().policy.mode == "round_robin"


@async_test
async def test_whoever_asks_before_a_placement_begins_shares_it() -> None:
    async with stand() as made:
        first, second, gone = (asyncio.create_task(made.steering.repack()) for _ in range(3))
        await asyncio.sleep(0)
        gone.cancel()
        assert await first is await second
        assert made.repacks == {"start": 1, "request": 1}
        with pytest.raises(asyncio.CancelledError):
            await gone


class Slow:
    """Planning that waits for the test, in the thread it runs in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self._plan = engine.plan
        self.fails = False
        monkeypatch.setattr(engine, "plan", self)

    def __call__(self, *args: Any) -> Any:
        self.began.set()
        assert self.go.wait(20)
        if self.fails:
            raise ZeroDivisionError("of the test")
        return self._plan(*args)


@async_test
async def test_the_loop_goes_on_while_a_placement_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand() as made:
        before = made.homes
        slow = Slow(monkeypatch)
        await made.steering.set_model("m", replicas=3)
        await eventually(slow.began.is_set)
        for _ in range(100):
            await asyncio.sleep(0)
        assert made.homes == before
        settled = asyncio.create_task(made.steering.settled())
        await asyncio.sleep(0)
        assert not settled.done()
        slow.go.set()
        await settled
        assert len(made.homes["m"]) == 3


@async_test
async def test_a_plan_of_a_mode_that_was_left_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand() as made:
        slow = Slow(monkeypatch)
        asked = asyncio.create_task(made.steering.repack())
        await eventually(slow.began.is_set)
        await made.steering.set_policy({"mode": "round_robin"})
        slow.go.set()
        with pytest.raises(FailedPrecondition, match=r"scheduling\.mode is round_robin now"):
            await asked
        assert made.repacks == {"start": 1}


@async_test
async def test_a_fault_of_ours_leaves_the_placement(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(packer_module, "_AFTER_FAILURE_SECONDS", 0.001)
    async with stand() as made:
        before = made.homes
        slow = Slow(monkeypatch)
        slow.fails = True
        slow.go.set()
        with pytest.raises(FailedPrecondition, match="of the test"):
            await made.steering.repack()
        await made.steering.settled()
        assert made.homes == before
        assert "the placement in force stays" in caplog.text
        slow.fails = False
        assert (await made.steering.repack()).trigger == "request"


@async_test
async def test_settings_that_no_placement_depends_on_bring_none_about() -> None:
    async with stand() as made:
        await made.steering.set_policy(
            {"routing_fill_factor": 0.5, "work_basis": "items", "rebalance_compute_seconds": 9}
        )
        await made.steering.set_model("m", fill_mode="spread", fill_factor=0.25)
        await made.ticks()
        assert made.repacks == {"start": 1}
        assert made.router.basis == "items"
        by_name = {model.name: model for model in made.steering.status().models}
        assert (by_name["m"].fill_mode, by_name["m"].quantum, by_name["m"].own) == ("spread", 250_000, True)
        assert (by_name["n"].fill_mode, by_name["n"].quantum, by_name["n"].own) == ("run", 500_000, False)


@async_test
async def test_said_once_that_it_stands_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with stand() as made:
        await made.packer.repack()
        assert caplog.text.count("this gateway stands alone") == 1
        assert "this gateway stands alone" in made.steering.status().warnings
