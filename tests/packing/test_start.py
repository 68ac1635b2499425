"""Gateways that pack, alone before workers of their own: what they start with, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from tests.packing.control import Control
from tests.packing.settings import MIB, WEIGHTS
from tests.packing.traffic import Burst, Traffic
from tests.packing.view import homes, page_of, repack_lines, repacks
from tests.support.busy import unique
from tests.support.client import Client
from tests.support.fleet import gateway_process
from tests.support.forwarder import Forwarder
from tests.support.gateway_fleet import wait_workers
from tests.support.messages import echo
from tests.support.process import HOST, ServerProcess, worker_process

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow

FAULTY_CONFIGURATION = 78
MakeGateway = Callable[..., ServerProcess]
MakeWorker = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def make_worker(workspace: Path, packing_bundles: Path, cache: Path) -> MakeWorker:
    """A worker, not yet started: its discipline, the models it loads, the room that it has for weights."""

    def make(discipline: str, models: tuple[str, ...], budget: int = 0, **environ: str) -> ServerProcess:
        return worker_process(
            [packing_bundles / "heavy"],
            log=workspace / f"{unique(discipline)}.log",
            cache=cache,
            include=models,
            environ={
                "INFERENCE_SERVER_SCHEDULER_DISCIPLINE": discipline,
                "INFERENCE_SERVER_RUNTIME_WEIGHT_BUDGET_BYTES": str(budget),
                **environ,
            },
        )

    return make


@pytest.fixture(scope="module")
def small(make_worker: MakeWorker) -> Iterator[list[ServerProcess]]:
    """Two workers, one of each discipline that can be packed, with room for two and a half of four models."""
    first, second = (make_worker(discipline, tuple(WEIGHTS), 10 * MIB) for discipline in ("fifo", "edf"))
    with first, second:
        yield [first, second]


@pytest.fixture(scope="module")
def partial(make_worker: MakeWorker) -> Iterator[ServerProcess]:
    """A worker that has one model of the four, and the others by request; with room for less than one."""
    with (
        make_worker("fifo", (), 2 * MIB, INFERENCE_SERVER_MODEL_CONTROL_MODE="explicit") as worker,
        Client(worker.address) as client,
    ):
        worker.wait_ready()
        client.load("w0", wait_for_ready=True).ok()
        yield worker


@pytest.fixture
def start(workspace: Path, tmp_path: Path) -> Iterator[MakeGateway]:
    """Starts a gateway before workers, by a file with these settings of `scheduling`."""
    with ExitStack() as stack:

        def make(
            workers: list[ServerProcess], endpoints: list[str] | None = None, **scheduling: object
        ) -> ServerProcess:
            file = tmp_path / f"{unique('gateway')}.yml"
            settings = {"mode": "lpt_packing", "default_replicas": 1, **scheduling}
            file.write_text(
                yaml.safe_dump(
                    {
                        "endpoints": endpoints or [worker.address for worker in workers],
                        "worker_names": [f"worker{index}" for index in range(len(workers))],
                        "worker_client": {"probe_seconds": 0.3},
                        "scheduling": settings,
                    }
                )
            )
            environ = {
                "REACTANT_GATEWAY_FILE": str(file),
                "REACTANT_GATEWAY_WORKERS": "",
                "REACTANT_GATEWAY_METRICS_ENDPOINTS": "",
                "REACTANT_GATEWAY_WORKER_NAMES": "",
            }
            return stack.enter_context(
                gateway_process(workers, log=workspace / f"{unique('packing')}.log", environ=environ)
            )

        yield make


def serves(gateway: ServerProcess, *workers: str) -> None:
    """Until these workers and no others get requests."""
    gateway.wait_listening()
    wait_workers(gateway, set(workers), 60)


def said(gateway: ServerProcess, level: str, *names: str) -> list[dict[str, object]]:
    """The lines of its log of this level in which all of these are."""
    return [
        event
        for event in gateway.events()
        if event.get("level") == level and all(name in str(event) for name in names)
    ]


def all_homes(gateway: ServerProcess) -> set[str]:
    """The workers that any model has a home on."""
    return {worker for workers in homes(page_of(gateway)).values() for worker in workers}


def test_memory_is_not_oversubscribed_where_it_need_not_be(
    small: list[ServerProcess], start: MakeGateway
) -> None:
    """Two models of equal size fit on each; three would not, however uneven the load is."""
    gateway = start(small, first_rebalance_compute_seconds=0.1, rebalance_compute_seconds=0.1)
    serves(gateway, "worker0", "worker1")
    # One has as much load as the other three.
    plan = {"w0": Burst(0.1, 6), **dict.fromkeys(("w1", "w2", "w3"), Burst(0.1, 2))}
    with Traffic(gateway.address, plan) as traffic, Control(gateway.address) as control:
        eventually_sync(lambda: len(repack_lines(gateway.events())) >= 4, 30, what="repacked, and again")
        status = control.status()
    traffic.assert_all_right()
    assert sorted(worker.homes for worker in status.workers) == [2, 2]
    for worker in status.workers:
        assert (worker.weight_bytes, worker.weight_budget_bytes) == (8 * MIB, 10 * MIB)
        assert worker.memory_share == pytest.approx(0.8)
    assert not said(gateway, "warning", "oversubscri")
    assert {model.weight_bytes for model in status.models} == {4 * MIB}


def test_without_any_traffic(small: list[ServerProcess], start: MakeGateway) -> None:
    """Models are placed, and stay where they are; and a gateway that stands alone says so once."""
    gateway = start(small)
    serves(gateway, "worker0", "worker1")
    with Control(gateway.address) as control:
        eventually_sync(lambda: control.status().placed, 10, what="models are placed")
        placed = homes(page_of(gateway))
        assert sorted(worker.homes for worker in control.status().workers) == [2, 2]
        answer = control.repack()
        assert answer.done
        assert answer.report.placed == len(WEIGHTS)
        assert not answer.report.moves
        assert homes(page_of(gateway)) == placed
        assert {model.demand for model in control.status().models} == {0.0}
    assert len(repack_lines(gateway.events())) == repacks(page_of(gateway))
    assert len(said(gateway, "warning", "registry")) == 1


def test_models_that_no_worker_has_room_for_are_still_served(
    small: list[ServerProcess], partial: ServerProcess, start: MakeGateway
) -> None:
    """More weights than all budgets together: a warning, and every model answers."""
    gateway = start([partial, small[0]])
    serves(gateway, "worker0", "worker1")
    with Client(gateway.address) as client, Control(gateway.address) as control:
        for model in WEIGHTS:
            client.infer(echo(model=model), wait_for_ready=True).ok()
        answer = control.repack()
        status = control.status()
        assert answer.done
        assert answer.report.placed == len(WEIGHTS)
        for model in WEIGHTS:
            client.infer(echo(model=model), wait_for_ready=True).ok()
    assert any("worker" in warning and "budget" in warning for warning in status.warnings), status.warnings
    assert said(gateway, "warning", "budget")
    assert any(worker.weight_bytes > worker.weight_budget_bytes for worker in status.workers)


def test_a_model_that_some_workers_miss_is_placed_where_it_is(
    small: list[ServerProcess], partial: ServerProcess, start: MakeGateway
) -> None:
    gateway = start([partial, small[0]], default_replicas="all")
    serves(gateway, "worker0", "worker1")
    eventually_sync(lambda: homes(page_of(gateway)).keys() == WEIGHTS.keys(), 10, what="all are placed")
    placed = homes(page_of(gateway))
    assert placed["w0"] == {"worker0", "worker1"}
    assert all(placed[model] == {"worker1"} for model in ("w1", "w2", "w3"))
    assert all(said(gateway, "warning", model) for model in ("w1", "w2", "w3")), gateway.tail()
    with Traffic(gateway.address, dict.fromkeys(WEIGHTS, Burst(0.1, 2))) as traffic:
        # One comes to it, and goes again.
        with Client(partial.address) as client:
            client.load("w1", wait_for_ready=True).ok()
            eventually_sync(lambda: homes(page_of(gateway))["w1"] == {"worker0", "worker1"}, 10)
            client.unload("w1").ok()
            eventually_sync(lambda: homes(page_of(gateway))["w1"] == {"worker1"}, 10)
        assert homes(page_of(gateway)) == placed
    traffic.assert_all_right()


def test_a_worker_that_is_gone_for_good_leaves_its_models_to_others(
    small: list[ServerProcess], start: MakeGateway
) -> None:
    """Without an error: until they have another home, failover finds who has them."""
    with Forwarder(HOST, small[1].port) as way:
        gateway = start(small, [small[0].address, way.address])
        serves(gateway, "worker0", "worker1")
        eventually_sync(lambda: all_homes(gateway) == {"worker0", "worker1"}, 10, what="both have models")
        with Traffic(gateway.address, dict.fromkeys(WEIGHTS, Burst(0.2, 2))) as traffic:
            traffic.go_on(0.5)
            way.cut()
            eventually_sync(lambda: all_homes(gateway) == {"worker0"}, 40, what="one has all models")
            traffic.go_on(0.5)
    traffic.assert_all_right()
    assert repacks(page_of(gateway), "membership") == 1
    assert homes(page_of(gateway)).keys() == WEIGHTS.keys()


def test_a_worker_that_shares_its_device_fairly_cannot_be_packed(
    small: list[ServerProcess], make_worker: MakeWorker, start: MakeGateway
) -> None:
    """One that joins later gets no models; one that is there when a gateway starts is an end to that."""
    fair = make_worker("fair", ("w0",))
    gateway = start([small[0], fair])
    serves(gateway, "worker0")
    eventually_sync(lambda: all_homes(gateway) == {"worker0"}, 10, what="placed without it")
    with fair, Client(gateway.address) as client, Control(gateway.address) as control:
        fair.wait_ready()
        eventually_sync(
            lambda: said(gateway, "error", "worker1", "fair"), 20, what="an error that names the worker"
        )
        assert control.repack().done
        for model in WEIGHTS:
            client.infer(echo(model=model), wait_for_ready=True).ok()
        found = {worker.name: worker.homes for worker in control.status().workers}
        assert all_homes(gateway) == {"worker0"}
        assert found == {"worker0": 4, "worker1": 0}
        assert len(said(gateway, "error", "worker1", "fair")) == 1

        second = start([small[0], fair])
        assert second.wait(60) == FAULTY_CONFIGURATION
    (error,) = said(second, "error", "worker1") or said(second, "critical", "worker1")
    assert "fair" in str(error)
    assert "fifo" in str(error)
    assert "worker0" not in str(error)
    assert gateway.running
