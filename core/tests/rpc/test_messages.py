"""Message limits and compression, on both transports (case W13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from reactant_core.rpc import create_channel
from reactant_core.testing import async_test

RECV, SEND = 100_000, 200_000
Serving = Callable[..., Any]


async def status(call: Any) -> grpc.StatusCode:
    """The status a call ends with."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@async_test
async def test_limits_both_ways_and_the_connection_survives(transport: Any, serving: Serving) -> None:
    exhausted, ok = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OK
    async with serving(transport, max_recv_msg_bytes=RECV, max_send_msg_bytes=SEND) as served:
        say, make = served.unary("Say"), served.unary("Make")
        assert await status(say(bytes(RECV))) is ok
        peer_before = await peer(served)
        assert await status(say(bytes(RECV + 1), timeout=10)) is exhausted
        assert await status(make(str(SEND + 1).encode(), timeout=10)) is exhausted
        assert await status(make(str(SEND).encode())) is ok
        assert await status(say(bytes(RECV))) is ok
        assert await peer(served) == peer_before, "the channel had to reconnect"


async def peer(served: Any) -> str:
    """The client's address as the server sees it: a new one after a reconnect."""
    address: bytes = await served.unary("Peer")(b"")
    return address.decode()


@async_test
async def test_limits_hold_in_streams(transport: Any, serving: Serving) -> None:
    async with serving(transport, max_recv_msg_bytes=RECV, max_send_msg_bytes=SEND) as served:
        call = served.channel.stream_stream("/test.Echo/Chat", bytes, bytes)()
        await call.write(bytes(RECV + 1))
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await served.unary("Say")(b"x") == b"x"


@async_test
async def test_a_response_over_the_channels_limit(transport: Any, serving: Serving) -> None:
    def client(address: str) -> grpc.aio.Channel:
        return create_channel(address, max_recv_msg_bytes=SEND, max_send_msg_bytes=RECV)

    async with serving(transport, client=client) as served:
        assert (
            await status(served.unary("Make")(str(SEND + 1).encode())) is grpc.StatusCode.RESOURCE_EXHAUSTED
        )
        assert await status(served.unary("Say")(bytes(RECV + 1))) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await status(served.unary("Make")(str(SEND).encode())) is grpc.StatusCode.OK


@pytest.mark.slow
@async_test
async def test_64_mb_pass_by_default(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        data = b"0123456789abcdef" * (4 * 1024 * 1024)
        assert await served.unary("Say")(data) == data
        assert len(await served.unary("Make")(b"64000000")) == 64_000_000


@async_test
async def test_gzip_requests(transport: Any, serving: Serving) -> None:
    async with serving(transport, max_recv_msg_bytes=RECV) as served:
        say = served.unary("Say")
        assert await say(bytes(RECV), compression=grpc.Compression.Gzip) == bytes(RECV)
        # The limit is on what comes out of the decompression.
        over = say(bytes(20 * RECV), compression=grpc.Compression.Gzip)
        assert await status(over) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await say(b"x") == b"x"
        chat = served.channel.stream_stream("/test.Echo/Chat", bytes, bytes)
        call = chat(compression=grpc.Compression.Gzip)
        await call.write(bytes(1000))
        assert await call.read() == bytes(1000)
        await call.done_writing()


@async_test
async def test_deflate_requests(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        say = served.unary("Say")
        call = say(bytes(1000), compression=grpc.Compression.Deflate)
        if transport == "grpcio":
            assert await call == bytes(1000)
        else:
            # Not offered by pygrpc_native 0.5.0: refused as the gRPC compression document asks, not garbled.
            # When this begins to fail because the answer is right, close the known limit.
            with pytest.raises(grpc.aio.AioRpcError, match="deflate") as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await say(b"x") == b"x"
