"""Workers that are there and say nothing, or are not there at all."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from tests.support import metrics
from tests.support.client import Client
from tests.support.gateway_fleet import (
    IMPATIENT,
    gateway_of,
    ready_workers,
    stand_in_process,
    start_again,
    wait_workers,
)
from tests.support.messages import echo
from tests.support.process import HOST, ServerProcess

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = pytest.mark.slow

BOTH = {"worker0", "worker1"}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ServerProcess, list[ServerProcess], Client]]:
    """A gateway, two idempotent stand-ins that are called w0 and w1, and a client."""
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                stand_in_process("--idempotent", f"--name=w{at}", log=tmp_path / f"worker{at}.log")
            )
            for at in range(2)
        ]
        gateway = stack.enter_context(gateway_of(workers, log=tmp_path / "gateway.log", environ=IMPATIENT))
        gateway.wait_ready()
        wait_workers(gateway, BOTH)
        yield gateway, workers, stack.enter_context(Client(gateway.address))


def answered_by(client: Client, calls: int) -> set[str]:
    """Who answers so many calls, all of which must succeed, each within a second."""
    names = set()
    for _ in range(calls):
        reply = client.infer(echo(), timeout=5)
        names.add(reply.ok().model_version)
        assert reply.seconds < 1
    return names


def test_a_frozen_worker_loses_its_connection_and_its_requests_go_elsewhere(
    pair: tuple[ServerProcess, list[ServerProcess], Client],
) -> None:
    gateway, (frozen, _), client = pair
    assert answered_by(client, 10) == {"w0", "w1"}

    frozen.signal(signal.SIGSTOP)
    try:
        waiting = [client.start_infer(echo(id=str(at)), timeout=10) for at in range(10)]
        assert {one.reply().ok().model_version for one in waiting} == {"w1"}
        wait_workers(gateway, {"worker1"}, 5)
        assert answered_by(client, 20) == {"w1"}
        assert gateway.get("/readyz").status == 200
    finally:
        frozen.signal(signal.SIGCONT)

    wait_workers(gateway, BOTH, 10)
    assert answered_by(client, 10) == {"w0", "w1"}


def test_a_worker_that_takes_calls_and_answers_none_is_ejected_by_its_probes(
    pair: tuple[ServerProcess, list[ServerProcess], Client],
) -> None:
    """Its connections are alive and answer PINGs, so that only probes can tell."""
    gateway, (mute, _), client = pair
    mute.signal(signal.SIGUSR1)
    begin = time.monotonic()
    wait_workers(gateway, {"worker1"}, 10)
    # Three probes, a timeout and a pause each, and some room.
    assert time.monotonic() - begin < 4
    assert answered_by(client, 20) == {"w1"}

    mute.signal(signal.SIGUSR1)
    wait_workers(gateway, BOTH, 10)
    assert answered_by(client, 10) == {"w0", "w1"}
    assert mute.stop() == 0


def test_a_clients_deadline_alone_ejects_nobody(
    pair: tuple[ServerProcess, list[ServerProcess], Client],
) -> None:
    gateway, _, client = pair
    for _ in range(10):
        reply = client.infer(echo(parameters={"seconds": 5.0}), timeout=0.05)
        assert reply.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert ready_workers(gateway) == BOTH
    assert answered_by(client, 10) == {"w0", "w1"}
    assert not [event for event in gateway.events() if event.get("event") == "worker is unavailable"]


def test_cancels_while_a_worker_stalls_harm_no_other_call(tmp_path: Path) -> None:
    """It then reads the requests and their resets in one go, which some HTTP/2 servers take for an attack and
    end the connection that all share."""
    with ExitStack() as stack:
        worker = stack.enter_context(stand_in_process(log=tmp_path / "worker.log"))
        gateway = stack.enter_context(gateway_of([worker], log=tmp_path / "gateway.log"))
        gateway.wait_ready()
        client = stack.enter_context(Client(gateway.address))
        running = client.start_infer(echo(id="running", parameters={"seconds": 1.0}))
        client.infer(echo()).ok()  # behind it on the same connection

        worker.signal(signal.SIGSTOP)
        try:
            given_up = [client.start_infer(echo(parameters={"seconds": 60.0})) for _ in range(100)]
            eventually_sync(lambda: in_flight(gateway) == 101)
            for one in given_up:
                one.cancel()
            eventually_sync(lambda: in_flight(gateway) == 1)
        finally:
            worker.signal(signal.SIGCONT)

        assert running.reply().ok().id == "running"
        assert client.infer(echo()).ok()
        assert not [event for event in gateway.events() if event.get("event") == "worker is unavailable"]
        assert worker.stop() == 0


def in_flight(gateway: ServerProcess) -> float:
    return metrics.parse(gateway.get("/metrics").body).value("gateway_inflight_requests")


def test_what_only_accepts_connections_is_no_worker(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as sink, ExitStack() as stack:
        held = ServerProcess([], {}, log=tmp_path / "none.log", port=sink.getsockname()[1], http_port=0)
        worker = stack.enter_context(stand_in_process("--name=w1", log=tmp_path / "worker.log"))
        gateway = gateway_of([held, worker], log=tmp_path / "gateway.log", environ=IMPATIENT)
        stack.enter_context(gateway)
        gateway.wait_ready()
        client = stack.enter_context(Client(gateway.address))
        assert answered_by(client, 20) == {"w1"}
        assert ready_workers(gateway) == {"worker1"}


def test_without_any_worker_it_is_alive_and_says_so_quickly(tmp_path: Path) -> None:
    worker = stand_in_process("--name=late", log=tmp_path / "worker.log")
    with (
        gateway_of([worker], log=tmp_path / "gateway.log") as gateway,
        Client(gateway.address) as client,
    ):
        gateway.wait_listening()
        assert gateway.get("/healthz").status == 200
        assert gateway.get("/readyz").status == 503
        assert client.call("ServerLive", pb.ServerLiveRequest(), wait_for_ready=True).ok().live
        assert not client.call("ServerReady", pb.ServerReadyRequest()).ok().ready
        refused = client.infer(echo())
        assert refused.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND)
        assert refused.trailers == {"reactant-not-started": "1"}
        assert refused.seconds < 1.5

        with worker:
            gateway.wait_ready(5)
            assert client.infer(echo()).ok().model_version == "late"

        # And again, once it has been there.
        eventually_sync(lambda: gateway.get("/readyz").status == 503, 5)
        gone = client.infer(echo())
        assert gone.code is grpc.StatusCode.UNAVAILABLE
        assert gone.trailers == {"reactant-not-started": "1"}
        assert gone.seconds < 1.5
        start_again(worker)
        gateway.wait_ready(5)
        assert client.infer(echo()).ok().model_version == "late"
        assert worker.stop() == 0
