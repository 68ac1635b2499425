"""Bytes that are no message are answered, and fill no log."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest

from reactant_core.logs import configure_logs
from reactant_core.rpc import create_server
from reactant_core.testing import async_test

GARBAGE = b"\xff"
SERVICE = "test.Garbage"
# HTTP/2 preface, SETTINGS, HEADERS of a POST of `/a/b` with `x-a: 80 FF`, DATA with an empty message.
_BLOCK = (
    b"\x83\x86\x04\x04/a/b\x01\x01a\x0f\x10\x10application/grpc\x00\x02te\x08trailers\x00\x03x-a\x02\x80\xff"
)
ODD_METADATA = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    + len(_BLOCK).to_bytes(3, "big")
    + b"\x01\x04\x00\x00\x00\x01"
    + _BLOCK
    + b"\x00\x00\x05\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00"
)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged; puts global logging state back."""
    root = logging.getLogger()
    handlers, number = list(root.handlers), root.level
    lines = io.StringIO()
    configure_logs("info", stream=lines, environ={})
    yield lines
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(number)


async def one(request: HealthCheckRequest, _: Any) -> HealthCheckRequest:
    return request


async def many(request: HealthCheckRequest, _: Any) -> AsyncIterator[HealthCheckRequest]:
    yield request


async def each(requests: AsyncIterator[HealthCheckRequest], _: Any) -> AsyncIterator[HealthCheckRequest]:
    async for request in requests:
        yield request


async def last(requests: AsyncIterator[HealthCheckRequest], _: Any) -> HealthCheckRequest:
    found = HealthCheckRequest()
    async for request in requests:
        found = request
    return found


async def faulty(_: HealthCheckRequest, __: Any) -> HealthCheckRequest:
    return HealthCheckRequest.FromString(GARBAGE)


async def calls(transport: Any, method: str, message: bytes) -> grpc.StatusCode:
    decode, encode = HealthCheckRequest.FromString, HealthCheckRequest.SerializeToString
    handlers = {
        "one": grpc.unary_unary_rpc_method_handler(one, decode, encode),
        "many": grpc.unary_stream_rpc_method_handler(many, decode, encode),
        "each": grpc.stream_stream_rpc_method_handler(each, decode, encode),
        "last": grpc.stream_unary_rpc_method_handler(last, decode, encode),
        "faulty": grpc.unary_unary_rpc_method_handler(faulty, decode, encode),
    }
    server = create_server(transport=transport)
    generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
    server.server.add_generic_rpc_handlers((generic,))
    server.server.add_registered_method_handlers(SERVICE, handlers)
    port = server.bind("127.0.0.1", 0)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            # Bytes have no serializer; one message and the end look the same whatever the method's kind.
            multi: Any = channel.stream_stream(f"/{SERVICE}/{method}")
            call = multi(iter([message]))
            try:
                async for _ in call:
                    pass
            except grpc.aio.AioRpcError:
                pass
            code: grpc.StatusCode = await call.code()
            return code
    finally:
        await server.stop(0)


@pytest.mark.parametrize("transport", ["native", "grpcio"])
@pytest.mark.parametrize("method", ["one", "many", "each", "last"])
@async_test
async def test_a_request_that_is_no_message_leaves_no_line(
    stream: io.StringIO, transport: str, method: str
) -> None:
    assert await calls(transport, method, GARBAGE) in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
    assert stream.getvalue() == ""


@async_test
async def test_metadata_that_is_no_text_leaves_no_line(stream: io.StringIO) -> None:
    seen = asyncio.Event()

    async def noting(request: HealthCheckRequest, context: Any) -> HealthCheckRequest:
        context.invocation_metadata()
        seen.set()
        return request

    handler = grpc.unary_unary_rpc_method_handler(
        noting, HealthCheckRequest.FromString, HealthCheckRequest.SerializeToString
    )
    server = create_server(transport="grpcio")
    server.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a", {"b": handler}),))
    port = server.bind("127.0.0.1", 0)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ODD_METADATA)
    async with asyncio.timeout(5):
        await seen.wait()
        await reader.read(1)
    writer.close()
    await writer.wait_closed()
    await server.stop(0)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("transport", ["native", "grpcio"])
@async_test
async def test_a_handler_that_reads_something_else_amiss_is_heard(
    stream: io.StringIO, transport: str
) -> None:
    assert await calls(transport, "faulty", b"") == grpc.StatusCode.UNKNOWN
    (record,) = map(json.loads, stream.getvalue().splitlines())
    assert record["level"] == "error"
    assert "return HealthCheckRequest.FromString(GARBAGE)" in record["exception"]


def test_other_lines_of_the_same_loggers_stay(stream: io.StringIO) -> None:
    for name in ("grpc._cython.cygrpc", "grpc._common", "pygrpc_native._server"):
        try:
            raise RuntimeError("something else")
        except RuntimeError:
            logging.getLogger(name).exception("Exception serializing message!")
    assert len(stream.getvalue().splitlines()) == 3
