"""What a stop means for calls before, during and after it, on both transports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from reactant_core.errors import NOT_STARTED_KEY
from reactant_core.rpc import create_channel, create_server
from reactant_core.testing import async_test, eventually

Serving = Callable[..., Any]


async def failure(call: Any) -> grpc.aio.AioRpcError:
    """The error a call must end with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@async_test
async def test_running_calls_finish_and_new_ones_are_unavailable(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        running = served.unary("Wait")(b"a")
        await served.echo.started.wait()
        stopping = asyncio.create_task(served.server.stop(30))

        async def refused() -> bool:
            call = served.unary("Say")(b"b", timeout=5)
            return await call.code() is grpc.StatusCode.UNAVAILABLE

        await eventually(refused)
        async with create_channel(f"127.0.0.1:{served.port}") as other:
            call = other.unary_unary("/test.Echo/Say", bytes, bytes)(b"x", timeout=5)
            assert (await failure(call)).code() is grpc.StatusCode.UNAVAILABLE
        assert not stopping.done()
        begun = time.monotonic()
        served.echo.released.set()
        assert await running == b"a"
        await stopping
        assert time.monotonic() - begun < 10, "the stop must not use up its grace"


@async_test
async def test_native_refusals_say_not_started(serving: Serving) -> None:
    async with serving("native") as served:
        running = served.unary("Wait")(b"a")
        await served.echo.started.wait()
        stopping = asyncio.create_task(served.server.stop(30))

        async def trailers() -> dict[str, Any]:
            call = served.unary("Say")(b"b")
            return dict(await call.trailing_metadata())

        assert await eventually(trailers) == {NOT_STARTED_KEY: "1"}
        served.echo.released.set()
        await running
        await stopping


@async_test
async def test_calls_over_the_grace_are_cancelled(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        running = served.unary("Wait")(b"a")
        chat = served.channel.stream_stream("/test.Echo/Chat", bytes, bytes)()
        await chat.write(b"x")
        assert await chat.read() == b"x"
        await served.echo.started.wait()
        begun = time.monotonic()
        await served.server.stop(0.1)
        assert 0.1 <= time.monotonic() - begun < 5
        assert (await failure(running)).code() is grpc.StatusCode.UNAVAILABLE
        assert await chat.code() is grpc.StatusCode.UNAVAILABLE
        await eventually(served.echo.cancelled.is_set)


@pytest.mark.slow
@async_test
async def test_a_large_answer_on_its_way_arrives(transport: Any, serving: Serving) -> None:
    size = 150_000_000
    async with serving(transport) as served:
        call = asyncio.ensure_future(awaited(served.unary("Make")(str(size).encode())))
        await served.echo.made.wait()
        await served.server.stop(60)
        assert len(await call) == size


async def awaited(call: Any) -> bytes:
    answer: bytes = await call
    return answer


@async_test
async def test_an_idle_server_stops_at_once_and_stop_may_be_repeated(
    transport: Any, serving: Serving
) -> None:
    async with serving(transport) as served:
        await served.unary("Say")(b"x")
        begun = time.monotonic()
        await served.server.stop(60)
        await served.server.stop(60)
        assert time.monotonic() - begun < 10
        assert (await failure(served.unary("Say")(b"x"))).code() is grpc.StatusCode.UNAVAILABLE


@async_test
async def test_a_server_never_started_or_never_bound_stops(transport: Any) -> None:
    server = create_server(transport=transport)
    await server.stop(1)
    server = create_server(transport=transport)
    server.bind("127.0.0.1", 0)
    await server.stop(1)
