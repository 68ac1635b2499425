"""grpc.health.v1 on both transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reactant_core.rpc import HealthServicer, RpcServer, add_health
from reactant_core.testing import async_test, eventually

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
Serving = Callable[..., Any]


def adding(servicer: HealthServicer) -> Callable[[RpcServer], None]:
    return lambda server: add_health(server, servicer)


def request(name: str) -> Any:
    return health_pb2.HealthCheckRequest(service=name)


async def next_status(watch: Any) -> int:
    answer = await asyncio.wait_for(watch.read(), 10)
    status: int = answer.status
    return status


@async_test
async def test_check(transport: Any, serving: Serving) -> None:
    health = HealthServicer()
    async with serving(transport, add=adding(health)) as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        assert (await stub.Check(request(""))).status == NOT_SERVING
        health.set("", True)
        health.set("minilm", True)
        health.set("модель", False)
        assert (await stub.Check(request(""))).status == SERVING
        assert (await stub.Check(request("minilm"))).status == SERVING
        assert (await stub.Check(request("модель"))).status == NOT_SERVING
        health.remove("minilm")
        for name in ("minilm", "never"):
            with pytest.raises(grpc.aio.AioRpcError, match=name) as caught:
                await stub.Check(request(name))
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@async_test
async def test_watch_follows_a_name_from_unknown_to_gone(transport: Any, serving: Serving) -> None:
    health = HealthServicer()
    async with serving(transport, add=adding(health)) as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(request("m"))
        assert await next_status(watch) == SERVICE_UNKNOWN
        health.set("other", True)
        health.set("m", False)
        assert await next_status(watch) == NOT_SERVING
        health.set("m", False)
        health.set("m", True)
        assert await next_status(watch) == SERVING
        health.remove("m")
        assert await next_status(watch) == SERVICE_UNKNOWN
        health.set("m", True)
        assert await next_status(watch) == SERVING
        watch.cancel()


@async_test
async def test_watchers_leave_nothing_behind(transport: Any, serving: Serving) -> None:
    health = HealthServicer()
    async with serving(transport, add=adding(health)) as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        watches = [stub.Watch(request(f"model-{number % 3}")) for number in range(20)]
        for watch in watches:
            assert await next_status(watch) == SERVICE_UNKNOWN
        assert health.watchers() == 20
        for watch in watches[:15]:
            watch.cancel()
        await eventually(lambda: health.watchers() == 5)
        # A vanished connection counts as much as a cancel.
        await served.channel.close()
        await eventually(lambda: health.watchers() == 0)
        await eventually(lambda: not [t for t in asyncio.all_tasks() if "Watch" in repr(t.get_coro())])


@async_test
async def test_many_watchers_of_one_name_all_hear(transport: Any, serving: Serving) -> None:
    health = HealthServicer()
    async with serving(transport, add=adding(health)) as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        watches = [stub.Watch(request("")) for _ in range(10)]
        assert [await next_status(watch) for watch in watches] == [NOT_SERVING] * 10
        health.set("", True)
        assert [await next_status(watch) for watch in watches] == [SERVING] * 10
        for watch in watches:
            watch.cancel()


@async_test
async def test_shutdown_tells_watchers_and_lets_the_stop_be_quick(transport: Any, serving: Serving) -> None:
    health = HealthServicer()
    health.set("", True)
    async with serving(transport, add=adding(health)) as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(request(""))
        unknown = health_pb2_grpc.HealthStub(served.channel).Watch(request("m"))
        assert await next_status(watch) == SERVING
        assert await next_status(unknown) == SERVICE_UNKNOWN
        health.shutdown()
        assert await next_status(watch) == NOT_SERVING
        for stream in (watch, unknown):
            assert await asyncio.wait_for(stream.code(), 10) is grpc.StatusCode.UNAVAILABLE
        health.set("", True)
        health.set("m", True)
        stub = health_pb2_grpc.HealthStub(served.channel)
        assert (await stub.Check(request(""))).status == NOT_SERVING
        await asyncio.wait_for(served.server.stop(60), 10)
