"""A worker whose execution does not end says so everywhere, until it has ended. It takes 30 s to be sure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2
from tests.support.busy import steps_for
from tests.support.client import Client
from tests.support.messages import slow
from tests.support.process import ServerProcess, worker_process

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = [
    pytest.mark.skipif(os.environ.get("REACTANT_TEST_FULL") != "1", reason="REACTANT_TEST_FULL=1: a minute"),
    pytest.mark.timeout(240),
]

LONG_SECONDS = 45.0


@pytest.fixture
def worker(fixtures: Path, cache: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    log = tmp_path / "worker.log"
    with worker_process([fixtures], log=log, cache=cache, include=("slow",)) as process:
        process.wait_ready()
        yield process


def test_not_ready_while_an_execution_is_overdue(worker: ServerProcess) -> None:
    with Client(worker.address) as client:
        steps = steps_for(LONG_SECONDS, client)
        for _ in range(30):
            client.infer(slow(1)).ok()  # what it takes as a rule
        overdue = client.start_infer(slow(steps), timeout=None)

        def serving() -> bool:
            request = health_pb2.HealthCheckRequest(service="")
            return bool(
                client.health.Check(request, timeout=5).status == health_pb2.HealthCheckResponse.SERVING
            )

        assert worker.get("/readyz").status == 200
        eventually_sync(lambda: worker.get("/readyz").status == 503, 60, what="/readyz is 503")
        assert worker.get("/readyz").json()["state"] == "stalled"
        eventually_sync(lambda: worker.get("/readyz").json()["stalled_seconds"] > 0, 2)
        eventually_sync(lambda: not serving(), 5, what="the health service says so too")
        assert not client.call("ServerReady", pb.ServerReadyRequest()).ok().ready
        assert client.call("ServerLive", pb.ServerLiveRequest()).ok().live
        assert b"\nworker_stalled_seconds 0.0\n" not in worker.get("/metrics").body
        assert not overdue.done()

        overdue.reply().ok()
        eventually_sync(serving, 5, what="ready again")
        assert worker.get("/readyz").json()["state"] == "ready"
        client.infer(slow(1)).ok()
    events = [event["event"] for event in worker.events() if "event" in event]
    told = [event for event in events if "execution" in event]
    assert told == [
        "an execution does not end, not ready until it does",
        "the execution that was overdue has ended",
    ]
