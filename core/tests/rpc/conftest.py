"""An echo service of raw bytes, served on either transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from reactant_core.rpc import RpcServer, create_channel, create_server

SERVICE = "test.Echo"


@dataclass
class Echo:
    """A service of raw bytes.

    Say gives its request back, Make as many bytes as asked, Peer the client's address; Wait answers when
    released, Chat echoes.
    """

    started: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    made: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(self, request: bytes, _: Any) -> bytes:
        return request

    async def make(self, request: bytes, _: Any) -> bytes:
        self.made.set()
        return bytes(int(request))

    async def peer(self, _: bytes, context: Any) -> bytes:
        address: str = context.peer()
        return address.encode()

    async def wait(self, request: bytes, _: Any) -> bytes:
        self.started.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return request

    async def chat(self, requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    def add_to(self, server: grpc.aio.Server) -> None:
        handlers: dict[str, Any] = {
            "Say": grpc.unary_unary_rpc_method_handler(self.say),
            "Make": grpc.unary_unary_rpc_method_handler(self.make),
            "Peer": grpc.unary_unary_rpc_method_handler(self.peer),
            "Wait": grpc.unary_unary_rpc_method_handler(self.wait),
            "Chat": grpc.stream_stream_rpc_method_handler(self.chat),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        server.add_registered_method_handlers(SERVICE, handlers)


@dataclass
class Served:
    """A running echo server and a channel to it."""

    server: RpcServer
    echo: Echo
    port: int
    channel: grpc.aio.Channel

    def unary(self, name: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
        return unary(self.channel, name)


def unary(channel: grpc.aio.Channel, name: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    """A stub of one unary method."""
    return channel.unary_unary(f"/{SERVICE}/{name}", bytes, bytes)


@asynccontextmanager
async def serve(
    transport: Any,
    *,
    add: Any = None,
    client: Any = None,
    unix: Path | None = None,
    port: bool = True,
    **options: Any,
) -> AsyncIterator[Served]:
    """An echo server with `options` of create_server; `add` may add services to it.

    With `unix` it listens there too, and without `port` nowhere else.
    """
    server = create_server(transport=transport, **options)
    echo = Echo()
    echo.add_to(server.server)
    if add is not None:
        add(server)
    number = server.bind("127.0.0.1", 0) if port else 0
    if unix is not None:
        server.bind_unix(unix)
    await server.start()
    address = f"127.0.0.1:{number}"
    channel = create_channel(address) if client is None else client(address)
    try:
        yield Served(server, echo, number, channel)
    finally:
        await channel.close()
        await server.stop(0)


@pytest.fixture(name="serving")
def _serving() -> Callable[..., AbstractAsyncContextManager[Served]]:
    """`async with serving(transport, **options of create_server) as served`."""
    return serve


@pytest.fixture(params=["native", "grpcio"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport in turn."""
    value: str = request.param
    return value
