"""Cancels against the server that our workers are served by, whose limits the pacing is made for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc as grpcio
import pytest
from services.gateway.tests.support.client import done, infer
from services.gateway.tests.support.rig import gateway
from services.gateway.tests.support.worker import Worker

from reactant_core.rpc import create_server
from reactant_core.testing import async_test, eventually
from reactant_gateway.h2.grpc import DEADLINE_EXCEEDED

pytest.importorskip("pygrpc_native")


class NativeWorker(Worker):
    """Answers a request when `go` is set; counts what has come and what was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.begun = self.cancelled = 0
        self._rpc = create_server(transport="native")

    async def start(self, path: str | None = None) -> None:
        methods: dict[str, Any] = {"ModelInfer": grpcio.unary_unary_rpc_method_handler(self._infer)}
        self._rpc.server.add_generic_rpc_handlers(
            (grpcio.method_handlers_generic_handler("inference.GRPCInferenceService", methods),)
        )
        self.address = f"127.0.0.1:{self._rpc.bind('127.0.0.1', 0)}"
        await self._rpc.start()

    async def stop(self) -> None:
        self.go.set()
        await self._rpc.stop(0)

    async def _infer(self, request: bytes, context: Any) -> bytes:
        self.begun += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return request


@asynccontextmanager
async def native() -> AsyncIterator[tuple[Any, NativeWorker]]:
    worker = NativeWorker()
    async with gateway(worker) as rig:
        yield rig, worker


@pytest.mark.slow
@pytest.mark.parametrize("by", ["reset", "connection", "deadline"])
@async_test
async def test_200_requests_given_up_at_once_harm_no_neighbour(by: str) -> None:
    async with native() as (rig, worker):
        kept_by, hasty = await rig.client(), await rig.client()
        kept = [kept_by.call(infer(size=n)) for n in range(5)]
        extra = ((b"grpc-timeout", b"100m"),) if by == "deadline" else ()
        calls = [hasty.call(extra=extra) for _ in range(200)]
        if by == "deadline":
            # Some of them may expire before the worker has begun them.
            assert [(await done(seen)).code for seen in calls] == [DEADLINE_EXCEEDED] * 200
        else:
            await eventually(lambda: worker.begun == 205)
        if by == "reset":
            for seen in calls:
                hasty.h2.reset_stream(seen.id, 8)
            hasty.flush()
        elif by == "connection":
            hasty.abort()
        await eventually(lambda: rig.forwarder.in_flight == 5)
        await eventually(lambda: worker.begun - worker.cancelled == 5)
        worker.go.set()
        for n, seen in enumerate(kept):
            assert ((await done(seen)).code, seen.message) == (0, infer(size=n))
        assert rig.lost == []


@pytest.mark.slow
@async_test
async def test_requests_given_up_in_the_write_that_opens_them_harm_no_neighbour() -> None:
    async with native() as (rig, worker):
        client = await rig.client()
        kept = client.call(infer(size=9))
        for _ in range(5):
            calls = [client.call(flush=False) for _ in range(40)]
            client.flush()
            for seen in calls:
                client.h2.reset_stream(seen.id, 8)
            client.flush()
            await asyncio.sleep(0.003)
        await eventually(lambda: rig.forwarder.in_flight == 1)
        await eventually(lambda: rig.links["a"]._connections[0].open_streams == 1)
        worker.go.set()
        assert (await done(kept)).message == infer(size=9)
        assert rig.lost == []
