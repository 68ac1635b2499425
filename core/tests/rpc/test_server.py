"""Both transports: choosing, binding, answering."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from reactant_core.net import BindError
from reactant_core.rpc import create_server
from reactant_core.testing import async_test

Serving = Callable[..., Any]


@async_test
async def test_auto_is_native_without_tls(serving: Serving) -> None:
    async with serving("auto") as served:
        assert served.server.transport == "native"
        assert "installed" in served.server.reason
        assert await served.unary("Say")(b"hello") == b"hello"


@async_test
async def test_auto_is_grpcio_where_the_wheel_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygrpc_native.aio", None)
    server = create_server(transport="auto")
    assert server.transport == "grpcio"
    assert "pygrpc_native cannot be imported" in server.reason
    with pytest.raises(ValueError, match="native is not possible: pygrpc_native cannot be imported"):
        create_server(transport="native")


@async_test
async def test_the_asked_for_transport_is_taken(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        assert (served.server.transport, served.server.reason) == (transport, "asked for")
        assert await served.unary("Say")(b"hello") == b"hello"
        assert served.server.services == ("test.Echo",)


@pytest.mark.parametrize("limit", [0, -1, 2**31])
@async_test
async def test_limits_out_of_range(limit: int) -> None:
    with pytest.raises(ValueError, match="max_recv_msg_bytes"):
        create_server(max_recv_msg_bytes=limit)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
@async_test
async def test_a_taken_port_is_an_error_that_names_it(transport: Any, host: str) -> None:
    first = create_server(transport=transport)
    port = first.bind("127.0.0.1", 0)
    await first.start()
    second = create_server(transport=transport)
    with pytest.raises(BindError, match=rf"cannot listen on {host}:{port}: address already in use"):
        second.bind(host, port)
    await second.stop(0)
    await first.stop(0)


@async_test
async def test_a_port_taken_by_the_other_transport_or_another_program(transport: Any) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        server = create_server(transport=transport)
        with pytest.raises(BindError, match=rf"127\.0\.0\.1:{port}: address already in use"):
            server.bind("127.0.0.1", port)
        await server.stop(0)


@async_test
async def test_a_host_that_is_not_ours_or_not_known(transport: Any) -> None:
    server = create_server(transport=transport)
    with pytest.raises(BindError, match=r"192\.0\.2\.1:0: cannot assign requested address"):
        server.bind("192.0.2.1", 0)
    with pytest.raises(BindError, match=r"no-such-host\.invalid:0: "):
        server.bind("no-such-host.invalid", 0)
    await server.stop(0)


@async_test
async def test_a_port_can_be_bound_again_at_once_after_a_stop(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        assert await served.unary("Say")(b"x") == b"x"
        await served.server.stop(0)
        again = create_server(transport=transport)
        assert again.bind("127.0.0.1", served.port) == served.port
        await again.stop(0)


@async_test
async def test_an_unknown_method_is_unimplemented_at_once(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.unary("Nope")(b"x", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@async_test
async def test_bidirectional_streams_work(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        call = served.channel.stream_stream("/test.Echo/Chat", bytes, bytes)()
        for message in (b"a", b"b" * 100_000):
            await call.write(message)
            assert await call.read() == message
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


@async_test
async def test_interceptors_see_every_call(transport: Any, serving: Serving) -> None:
    seen: list[str] = []

    class Recorder(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            seen.append(details.method)
            return await continuation(details)

    async with serving(transport, interceptors=[Recorder()]) as served:
        await served.unary("Say")(b"x")
        with pytest.raises(grpc.aio.AioRpcError):
            await served.unary("Nope")(b"x")
    assert seen == ["/test.Echo/Say", "/test.Echo/Nope"]
