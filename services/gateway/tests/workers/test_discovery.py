from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest

from reactant_core.testing import FakeClock, async_test, eventually
from reactant_gateway.workers.probe import SAYS_NOT_READY
from reactant_policy.routing.work import Totals
from reactant_proto import control_pb2


@async_test
async def test_a_worker_gets_requests_once_prepared_and_connected(discovering: Any, worker: Any) -> None:
    a, b = worker("a"), worker("b", models={"m": "LOADING", "n": "READY"})
    async with discovering(a, b) as fleet:
        assert fleet.candidates() is None
        await fleet.discovery.wait_first_ready()
        await eventually(lambda: len(fleet.discovery.ready_handles()) == 2)
        assert (fleet.candidates("m"), fleet.candidates("n")) == (("a",), ("b",))
        assert [e for e in fleet.events if e.endswith("a")] == ["replay a", "connect a"]
        assert fleet.handle("a").reason == ""


@pytest.mark.slow
@async_test
async def test_a_worker_that_is_not_ready_shows_its_models_and_gets_nothing(
    discovering: Any, worker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    a = worker("a", ready=False, models={"m": "LOADING"})
    async with discovering(a) as fleet:
        await eventually(lambda: fleet.candidates() == ())
        assert not fleet.discovery.ready_handles()
        assert fleet.events == []
        a.ready, a.models = True, {"m": "READY"}
        await eventually(lambda: fleet.candidates() == ("a",))
        a.ready = False
        await fleet.discovery.refresh(force=True)
        assert fleet.candidates() == ()
        assert "not ready" in fleet.handle("a").reason


@pytest.mark.slow
@async_test
async def test_three_probes_without_an_answer_eject(discovering: Any, worker: Any) -> None:
    a, b = worker("a"), worker("b")
    async with discovering(a, b, probe_timeout_seconds=0.05) as fleet:
        await eventually(lambda: fleet.candidates() == ("a", "b"))
        a.release = asyncio.Event()
        asked = a.probes
        fleet.discovery.suspect("a")
        await eventually(lambda: fleet.candidates() == ("b",))
        # The next one comes half a second later.
        assert a.probes == asked + 3
        assert "ServerReady: DEADLINE_EXCEEDED" in fleet.handle("a").reason
        a.release.set()
        a.release = None
        await eventually(lambda: fleet.candidates() == ("a", "b"))


@pytest.mark.slow
@async_test
async def test_two_probes_without_an_answer_do_not(discovering: Any, worker: Any) -> None:
    a = worker("a")
    async with discovering(a, probe_timeout_seconds=0.1) as fleet:
        await eventually(fleet.candidates)
        table = fleet.router.table
        a.release, before = asyncio.Event(), a.probes
        fleet.discovery.suspect("a")
        await eventually(lambda: a.probes == before + 3)
        a.release.set()
        await fleet.discovery.refresh(force=True)
        assert fleet.router.table is table


@pytest.mark.slow
@async_test
async def test_a_listener_that_never_speaks_is_never_admitted(discovering: Any, worker: Any) -> None:
    accepted: list[Any] = []
    mute = await asyncio.start_server(lambda _, w: accepted.append(w), "127.0.0.1", 0)
    address = f"127.0.0.1:{mute.sockets[0].getsockname()[1]}"
    a = worker("a")
    async with mute:
        async with discovering(a, addresses={"mute": address}, probe_timeout_seconds=0.1) as fleet:
            await eventually(lambda: "ServerReady" in fleet.handle("mute").reason)
            assert fleet.candidates() == ("a",)
            assert accepted
        for writer in accepted:
            writer.close()


@pytest.mark.slow
@async_test
async def test_a_worker_whose_port_falls_mute_is_ejected_and_comes_back(
    discovering: Any, worker: Any
) -> None:
    accepted: list[Any] = []
    a, b = worker("a"), worker("b")
    async with discovering(a, b, probe_timeout_seconds=0.1) as fleet:
        await eventually(lambda: fleet.candidates() == ("a", "b"))
        await a.stop()
        async with await asyncio.start_server(lambda _, w: accepted.append(w), "127.0.0.1", a.port):
            fleet.discovery.suspect("a")
            await eventually(lambda: fleet.candidates() == ("b",))
            assert "ServerReady" in fleet.handle("a").reason
            for writer in accepted:
                writer.close()
        await a.start()
        await eventually(lambda: fleet.candidates() == ("a", "b"))


@pytest.mark.slow
@async_test
async def test_a_refused_worker_is_out_at_once_and_back_when_it_serves(
    discovering: Any, worker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    a, b = worker("a"), worker("b")
    async with discovering(a, b) as fleet:
        await eventually(lambda: fleet.candidates() == ("a", "b"))
        await a.stop()
        fleet.discovery.suspect("a")
        await eventually(lambda: fleet.candidates() == ("b",))
        await eventually(lambda: "connection refused" in fleet.handle("a").reason)
        del fleet.events[:]
        await a.start()
        await eventually(lambda: fleet.candidates() == ("a", "b"))
        assert fleet.events == ["replay a", "connect a"]
    told = [record.getMessage() for record in caplog.records if "'a'" in record.getMessage()]
    assert [("unavailable" in line, "available" in line) for line in told] == [
        (False, True),
        (True, True),
        (False, True),
    ]
    assert "connection refused" in told[1]


@async_test
async def test_another_kserve_server_serves_without_what_only_workers_tell(
    discovering: Any, worker: Any
) -> None:
    async with discovering(worker("a", controls=None)) as fleet:
        await eventually(fleet.candidates)
        route = fleet.router.find("m")
        assert (route.idempotent, route.batch_input, route.seconds_per_item) == (False, None, None)


@async_test
async def test_names_no_model_can_have_are_left_out(discovering: Any, worker: Any) -> None:
    garbage = {"": "READY", "../m": "READY", "a\0b": "READY", ".hidden": "READY", "x" * 300: "READY"}
    control = control_pb2.ModelControl(name="../m", idempotent=True, compute_seconds=float("nan"))
    a = worker("a", models={**garbage, "m": "READY"}, controls=[control, control])
    async with discovering(a) as fleet:
        await eventually(fleet.candidates)
        assert set(fleet.router.table.routes) == {"m"}


@pytest.mark.slow
@async_test
async def test_a_lost_worker_is_out_of_the_table_when_the_call_returns(discovering: Any, worker: Any) -> None:
    a = worker("a")
    async with discovering(a) as fleet:
        await eventually(fleet.candidates)
        refreshing = asyncio.create_task(fleet.discovery.refresh(force=True))
        await asyncio.sleep(0)
        before = a.probes
        fleet.discovery.lost("a", "reset by peer")
        assert fleet.candidates() == ()
        assert not fleet.handle("a").ready
        assert fleet.handle("a").reason == "reset by peer"
        await refreshing
        await eventually(lambda: fleet.candidates() == ("a",))
        assert a.probes > before
        fleet.discovery.lost("somebody else", "reset by peer")
        fleet.discovery.suspect("somebody else")


@pytest.mark.slow
@async_test
async def test_a_worker_lost_while_it_comes_back_stays_out(discovering: Any, worker: Any) -> None:
    seen: list[tuple[str, ...] | None] = []

    async def before(handle: Any) -> None:
        seen.append(fleet.candidates())
        if len(seen) == 1:
            fleet.discovery.lost("a", "reset by peer")
            asyncio.get_running_loop().call_soon(lambda: seen.append(("after", *(fleet.candidates() or ()))))

    async with discovering(worker("a"), before=before) as fleet:
        await eventually(lambda: fleet.candidates() == ("a",))
        assert fleet.events == ["replay a", "connect a", "replay a", "connect a"]
        assert seen == [None, ("after",), ()]


@async_test
async def test_a_failing_replay_is_logged_and_holds_nobody_back(
    discovering: Any, worker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def before(handle: Any) -> None:
        raise RuntimeError("regions are gone")

    async with discovering(worker("a"), before=before) as fleet:
        await eventually(fleet.candidates)
    assert "regions are gone" in caplog.text


@pytest.mark.slow
@async_test
async def test_a_worker_without_a_connection_stays_out(discovering: Any, worker: Any) -> None:
    async with discovering(worker("a"), worker("b")) as fleet:
        fleet.links["a"].answers = [False, OSError("no route")]
        await eventually(lambda: fleet.candidates() == ("b",))
        await eventually(lambda: fleet.handle("a").reason == "no HTTP/2 connection")
        await eventually(lambda: "no route" in fleet.handle("a").reason)
        await eventually(lambda: fleet.candidates() == ("a", "b"))


@pytest.mark.slow
@async_test
async def test_answers_of_no_use_take_down_nobody_else(
    discovering: Any, worker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = worker("a", garbage=True), worker("b")
    async with discovering(a, b) as fleet:
        await eventually(lambda: fleet.candidates() == ("b",))
        await eventually(lambda: a.probes >= 3)
        b.models["n"] = "READY"
        await fleet.discovery.refresh(force=True)
        assert fleet.candidates("n") == ("b",)
        a.garbage = False
        await eventually(lambda: fleet.candidates() == ("a", "b"))
    # One line for the change, not one for each probe.
    assert caplog.text.count("worker is unavailable") == 1
    assert caplog.text.count("failed unexpectedly") == 1


@async_test
async def test_a_worker_in_service_keeps_its_models_when_they_cannot_be_read(
    discovering: Any, worker: Any
) -> None:
    control = control_pb2.ModelControl(name="m", idempotent=True, max_batch_size=8, batch_input="x")
    a = worker("a", controls=[control])
    async with discovering(a) as fleet:
        await eventually(fleet.candidates)
        table = fleet.router.table
        assert table.routes["m"].idempotent
        a.index_fault = grpc.StatusCode.INTERNAL
        for _ in range(4):
            await fleet.discovery.refresh(force=True)
        a.index_fault, a.control_fault = None, grpc.StatusCode.INTERNAL
        await fleet.discovery.refresh(force=True)
        assert fleet.router.table is table


@pytest.mark.slow
@async_test
async def test_a_worker_that_cannot_show_its_models_stays_out(discovering: Any, worker: Any) -> None:
    a = worker("a", index_fault=grpc.StatusCode.INTERNAL)
    async with discovering(a) as fleet:
        await eventually(lambda: "RepositoryIndex: INTERNAL" in fleet.handle("a").reason)
        a.index_fault = None
        await eventually(fleet.candidates)


@async_test
async def test_an_unchanged_probe_swaps_nothing_and_a_change_makes_a_new_table(
    discovering: Any, worker: Any
) -> None:
    a = worker("a")
    async with discovering(a) as fleet:
        await eventually(fleet.candidates)
        table, probes = fleet.router.table, a.probes
        await fleet.discovery.refresh(force=True)
        assert a.probes == probes + 1
        assert fleet.router.table is table
        a.models = {"n": "READY"}
        await fleet.discovery.refresh(force=True)
        assert set(fleet.router.table.routes) == {"n"}
        assert set(table.routes) == {"m"}


@async_test
async def test_cost_of_an_item_is_measured_between_probes(discovering: Any, worker: Any) -> None:
    control = control_pb2.ModelControl(name="m", compute_seconds=2.0, rows_served=4)
    async with discovering(worker("a", controls=[control])) as fleet:
        await eventually(fleet.candidates)
        costs = [fleet.router.find("m").seconds_per_item]
        for seconds, rows in ((3.0, 14), (3.0, 14), (1.0, 1)):
            control.compute_seconds, control.rows_served = seconds, rows
            await fleet.discovery.refresh(force=True)
            costs.append(fleet.router.find("m").seconds_per_item)
        assert costs == [0.5, 0.1, 0.1, 1.0]


@async_test
async def test_what_placement_needs_of_a_worker_is_read_and_kept(discovering: Any, worker: Any) -> None:
    control = control_pb2.ModelControl(
        name="m", compute_seconds=2.0, rows_served=4, weight_bytes=1000, residency="device"
    )
    other = control_pb2.ModelControl(name="m", weight_bytes=900, residency="system")
    a, b = worker("a", controls=[control]), worker("b", controls=[other], discipline="fair")
    a.weight_budget_bytes = 1 << 40
    async with discovering(a, b) as fleet:
        await eventually(lambda: fleet.candidates() == ("a", "b"))
        views, route = fleet.router.table.workers, fleet.router.find("m")
        assert [(views[w].discipline, views[w].weight_budget_bytes) for w in "ab"] == [
            ("fifo", 1 << 40),
            ("fair", 0),
        ]
        assert (route.weight_bytes, route.pinned) == (1000, ("a",))
        totals = fleet.discovery.totals()
        assert totals == {"a": {"m": Totals(2.0, 4)}, "b": {"m": Totals(0.0, 0)}}
        # A reading that fails leaves all of it as it was; one that does not makes another mapping.
        a.control_fault = grpc.StatusCode.INTERNAL
        b.discipline, control.compute_seconds = "edf", 3.0
        await fleet.discovery.refresh(force=True)
        after = fleet.discovery.totals()
        assert after["a"] is totals["a"]
        assert after["b"] is not totals["b"]
        assert [fleet.router.table.workers[w].discipline for w in "ab"] == ["fifo", "edf"]
        a.control_fault = None
        await fleet.discovery.refresh(force=True)
        assert fleet.discovery.totals()["a"] == {"m": Totals(3.0, 4)}
        await a.stop()
        fleet.discovery.lost("a", "test")
        assert fleet.router.table.workers["a"].discipline == "fifo"
        assert fleet.router.find("m").pinned == ()
        assert fleet.router.find("m").weight_bytes == 1000


@async_test
async def test_a_worker_that_is_not_ready_tells_its_discipline(discovering: Any, worker: Any) -> None:
    async with discovering(worker("a", ready=False, discipline="fair")) as fleet:
        await eventually(lambda: fleet.router.table.workers["a"].discipline == "fair")
        assert fleet.handle("a").reason == SAYS_NOT_READY
        assert fleet.candidates() == ()


@async_test
async def test_callers_share_a_refresh_and_wait_out_the_second(discovering: Any, worker: Any) -> None:
    clock, a = FakeClock(), worker("a")
    async with discovering(a, clock=clock, refresh_seconds=0.05) as fleet:
        await eventually(fleet.candidates)
        before = a.probes
        await asyncio.gather(*(fleet.discovery.refresh() for _ in range(20)))
        assert a.probes == before + 1
        # Within the second: the next refresh, which is again one for all.
        a.models["late"] = "READY"
        waiting = [asyncio.create_task(fleet.discovery.refresh()) for _ in range(20)]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        assert a.probes == before + 1
        await asyncio.gather(*waiting)
        assert a.probes == before + 2
        assert fleet.candidates("late") == ("a",)
        clock.advance(0.05)
        await fleet.discovery.refresh()
        assert a.probes == before + 3


@async_test
async def test_a_caller_that_comes_while_a_refresh_runs_gets_the_next(discovering: Any, worker: Any) -> None:
    clock, a = FakeClock(), worker("a")
    async with discovering(a, clock=clock, refresh_seconds=0.05) as fleet:
        await eventually(fleet.candidates)
        a.release, before = asyncio.Event(), a.probes
        first = asyncio.create_task(fleet.discovery.refresh())
        await eventually(lambda: a.probes == before + 1)
        second = asyncio.create_task(fleet.discovery.refresh())
        await asyncio.sleep(0)
        a.release.set()
        await asyncio.gather(first, second)
        assert a.probes == before + 2


@async_test
async def test_refreshes_keep_their_distance(discovering: Any, worker: Any) -> None:
    a = worker("a")
    async with discovering(a, clock=FakeClock(), refresh_seconds=60.0) as fleet:
        await eventually(fleet.candidates)
        await fleet.discovery.refresh()
        waiting = asyncio.create_task(fleet.discovery.refresh())
        for _ in range(3):
            await fleet.discovery.refresh(force=True)
        assert not waiting.done()
    # The end of the discovery is the end of the wait.
    await asyncio.wait_for(waiting, 5)


@async_test
async def test_forced_callers_ask_now_and_share(discovering: Any, worker: Any) -> None:
    clock, a = FakeClock(), worker("a")
    async with discovering(a, clock=clock, refresh_seconds=60.0) as fleet:
        await eventually(fleet.candidates)
        await fleet.discovery.refresh()
        before = a.probes
        await asyncio.gather(*(fleet.discovery.refresh(force=True) for _ in range(20)))
        assert a.probes == before + 1
        # A probe under way may have read the models too early for a caller that comes now.
        a.release = asyncio.Event()
        first = asyncio.create_task(fleet.discovery.refresh(force=True))
        await eventually(lambda: a.probes == before + 2)
        second = asyncio.create_task(fleet.discovery.refresh(force=True))
        await asyncio.sleep(0)
        a.release.set()
        await asyncio.gather(first, second)
        assert a.probes == before + 3


@async_test
async def test_suspicion_asks_at_once_but_not_over_and_over(discovering: Any, worker: Any) -> None:
    clock, a = FakeClock(), worker("a")
    async with discovering(a, clock=clock) as fleet:
        await eventually(fleet.candidates)
        await fleet.discovery.refresh(force=True)
        clock.advance(0.25)
        before = a.probes
        fleet.discovery.suspect("a")
        await eventually(lambda: a.probes == before + 1)
        await fleet.discovery.refresh(force=True)
        for _ in range(50):
            fleet.discovery.suspect("a")
            await asyncio.sleep(0.001)
        assert a.probes == before + 2


@async_test
async def test_nobody_waits_for_a_discovery_that_ended(discovering: Any, worker: Any) -> None:
    a = worker("a")
    async with discovering(a) as fleet:
        await eventually(fleet.candidates)
        a.release = asyncio.Event()
        waiting = asyncio.create_task(fleet.discovery.refresh(force=True))
        await asyncio.sleep(0)
    a.release.set()
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(fleet.discovery.refresh(force=True), 5)
