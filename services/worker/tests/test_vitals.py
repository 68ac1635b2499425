"""A worker whose execution does not end says that it is not ready, everywhere and in the log."""

from __future__ import annotations

from typing import Any, cast, final

import pytest
from grpc_health.v1 import health_pb2

from reactant_core.rpc import HealthServicer
from reactant_core.testing import async_test
from reactant_worker.vitals import Vitals


@final
class FakeEngine:
    """An engine that is as stuck as it is told."""

    def __init__(self) -> None:
        self.alive = True
        self.stalled = 0.0

    def stalled_seconds(self) -> float:
        return self.stalled


@final
class Worker:
    """Vitals over a fake engine, and what the health service says of them."""

    def __init__(self) -> None:
        self.engine, self._health = FakeEngine(), HealthServicer()
        self.vitals = Vitals(self.engine, self._health)

    async def serving(self) -> bool:
        answer = await self._health.Check(health_pb2.HealthCheckRequest(service=""), cast(Any, None))
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@async_test
async def test_ready_between_the_start_and_the_drain() -> None:
    worker = Worker()
    assert (worker.vitals.state, worker.vitals.ready, await worker.serving()) == ("starting", False, False)
    worker.vitals.enter("ready")
    assert (worker.vitals.state, worker.vitals.ready, await worker.serving()) == ("ready", True, True)
    worker.vitals.enter("draining")
    assert (worker.vitals.state, worker.vitals.ready, await worker.serving()) == ("draining", False, False)


@async_test
async def test_not_ready_while_an_execution_does_not_end(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker()
    worker.vitals.enter("ready")
    caplog.set_level("INFO")

    worker.engine.stalled = 12.3
    assert (worker.vitals.state, worker.vitals.ready) == ("stalled", False)
    for _ in range(2):
        worker.vitals.look()
    assert not await worker.serving()
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "12.3" in line

    worker.engine.stalled = 0.0
    worker.vitals.look()
    assert (worker.vitals.state, worker.vitals.ready, await worker.serving()) == ("ready", True, True)
    assert "has ended" in caplog.records[-1].getMessage()


@async_test
async def test_a_stuck_worker_that_drains_goes_on_draining() -> None:
    worker = Worker()
    worker.vitals.enter("draining")
    worker.engine.stalled = 1.0
    worker.vitals.look()

    assert (worker.vitals.state, worker.vitals.ready, await worker.serving()) == ("draining", False, False)


@async_test
async def test_not_ready_without_the_engines_threads() -> None:
    worker = Worker()
    worker.vitals.enter("ready")
    worker.engine.alive = False
    worker.vitals.look()

    assert (worker.vitals.ready, await worker.serving()) == (False, False)
