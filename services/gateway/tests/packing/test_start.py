"""The start of a whole gateway in `lpt_packing`, before workers of a few lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from services.gateway.tests.workers.conftest import FakeWorker

from reactant_core.config.effective import Effective
from reactant_core.config.gateway import GatewayConfig
from reactant_core.http_get import http_get
from reactant_core.lifecycle import Stop
from reactant_core.testing import async_test, eventually
from reactant_gateway import app
from reactant_gateway.gateway import Gateway
from reactant_gateway.packing.startup import StartRefused
from reactant_gateway.sockets import Listening, address_of, listen

pytestmark = pytest.mark.slow


@asynccontextmanager
async def before(*workers: FakeWorker, **config: Any) -> AsyncIterator[tuple[GatewayConfig, Listening]]:
    """The workers serve; what a gateway before them is made of."""
    for worker in workers:
        await worker.start()
    tree = {
        "endpoints": tuple(f"127.0.0.1:{worker.port}" for worker in workers),
        "worker_names": tuple(worker.name for worker in workers),
        "scheduling": {"mode": "lpt_packing", "default_replicas": 1},
        "lameduck_seconds": 0,
        **config,
    }
    listening = listen("127.0.0.1", 0, 0, {})
    try:
        yield GatewayConfig.model_validate(tree), listening
    finally:
        # A gateway that did not get as far as to serve leaves them open.
        listening.grpc.close()
        listening.http.close()
        for worker in workers:
            await worker.stop()


async def readyz(listening: Listening) -> dict[str, Any]:
    answer = await http_get(address_of(listening.http), "/readyz", limit_bytes=1 << 20)
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def page(listening: Listening) -> str:
    answer = await http_get(address_of(listening.http), "/metrics", limit_bytes=1 << 20)
    return answer.body.decode()


@async_test
async def test_a_node_serves_when_its_workers_have_compiled_with_every_model_placed() -> None:
    a, b = FakeWorker("a"), FakeWorker("b", ready=False, models={"m": "LOADING"})
    async with before(a, b) as (config, listening):
        gateway, stop = Gateway(config, listening, embedded=True), Stop()
        starting = asyncio.create_task(gateway.start(stop))
        await eventually(lambda: b.probes > 1)
        found = await readyz(listening)
        assert (found["ready"], found["state"]) == (False, "waiting for workers to compile, 1 of 2 ready")
        assert found["workers"]["b"] == "it says that it is not ready"
        assert not starting.done()
        b.ready, b.models = True, {"m": "READY"}
        await starting
        assert (await readyz(listening))["ready"]
        text = await page(listening)
        assert 'gateway_model_replicas{model="m"} 1.0' in text
        assert text.count("gateway_placement_weight{") == 1
        assert 'gateway_repacks_total{trigger="start"} 1.0' in text
        stop.request("test")
        await gateway.drain()
        await gateway.stop()


@async_test
async def test_a_gateway_alone_waits_no_longer_than_it_was_told(caplog: pytest.LogCaptureFixture) -> None:
    a, b = FakeWorker("a"), FakeWorker("b", ready=False)
    async with before(a, b) as (config, listening):
        gateway = Gateway(config, listening)
        await gateway.start(Stop())
        assert (await readyz(listening))["ready"]
        assert "serving without workers that have not compiled in time" in caplog.text
        assert caplog.text.count("this gateway places models by itself") == 1
        await gateway.drain()
        await gateway.stop()


@async_test
async def test_a_stop_ends_the_wait() -> None:
    async with before(FakeWorker("a", ready=False)) as (config, listening):
        gateway, stop = Gateway(config, listening, embedded=True), Stop()
        starting = asyncio.create_task(gateway.start(stop))
        await eventually(lambda: "waiting for workers" in gateway._state)
        stop.request("test")
        async with asyncio.timeout(5):
            await starting
            await gateway.serve(stop)
        await gateway.drain()
        await gateway.stop()


@async_test
async def test_a_worker_on_another_discipline_ends_the_start() -> None:
    a, b = FakeWorker("a"), FakeWorker("b", ready=False, discipline="fair")
    async with before(a, b) as (config, listening):
        gateway = Gateway(config, listening, embedded=True)
        with pytest.raises(StartRefused, match=r"b runs scheduler\.discipline fair"):
            await gateway.start(Stop())
        await gateway.stop()


@async_test
async def test_and_the_process_with_78(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with before(FakeWorker("w7", discipline="fair")) as (config, listening):
        monkeypatch.setattr(app, "listen", lambda *_: listening)
        assert await app.serve(Effective(config, {}), Stop()) == 78
        assert "w7 runs scheduler.discipline fair" in caplog.text
