"""Pings without calls are welcome (case W14); in raw HTTP/2, because gRPC clients never ping this fast."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from reactant_core.testing import async_test

DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
ACK, END_STREAM, END_HEADERS = 1, 1, 4
Serving = Callable[..., Any]


class RawClient:
    """The few frames of HTTP/2 (RFC 9113) and HPACK literals (RFC 7541) these tests need."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> RawClient:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client._writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        client.send(SETTINGS, 0, 0, b"")
        return client

    def send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        header = struct.pack(">IBI", len(payload) << 8 | kind, flags, stream)
        self._writer.write(header + payload)

    async def receive(self) -> tuple[int, int, int, bytes]:
        """Kind, flags, stream and payload of the next frame; EOFError at the end."""
        try:
            length_kind, flags, stream = struct.unpack(">IBI", await self._reader.readexactly(9))
            payload = await self._reader.readexactly(length_kind >> 8)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EOFError from error
        if (kind := length_kind & 0xFF) == SETTINGS and not flags & ACK:
            self.send(SETTINGS, ACK, 0, b"")
        return kind, flags, stream, payload

    async def receive_kind(self, kind: int) -> tuple[int, int, bytes]:
        """Flags, stream and payload of the next frame of `kind`; a GOAWAY that was not asked for fails."""
        while True:
            got, flags, stream, payload = await asyncio.wait_for(self.receive(), 10)
            if got == kind:
                return flags, stream, payload
            assert got != GOAWAY, payload

    def call(self, stream: int, path: bytes, message: bytes) -> None:
        """Sends one whole unary gRPC request."""
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path),
            (b":authority", b"test"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        ]
        block = b"".join(
            b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields
        )
        self.send(HEADERS, END_HEADERS, stream, block)
        self.send(DATA, END_STREAM, stream, b"\x00" + struct.pack(">I", len(message)) + message)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@async_test
async def test_many_pings_without_calls_cause_no_goaway(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        client = await RawClient.connect(served.port)
        for number in range(300):
            opaque = number.to_bytes(8, "big")
            client.send(PING, 0, 0, opaque)
            flags, _, payload = await client.receive_kind(PING)
            assert flags & ACK
            assert payload == opaque
        client.call(1, b"/test.Echo/Say", b"still here")
        _, stream, payload = await client.receive_kind(DATA)
        assert (stream, payload[5:]) == (1, b"still here")
        await client.close()


@async_test
async def test_pings_during_a_long_call_cause_no_goaway(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        client = await RawClient.connect(served.port)
        client.call(1, b"/test.Echo/Wait", b"patience")
        await served.echo.started.wait()
        for _ in range(100):
            client.send(PING, 0, 0, bytes(8))
            await client.receive_kind(PING)
        served.echo.released.set()
        _, _, payload = await client.receive_kind(DATA)
        assert payload[5:] == b"patience"
        await client.close()


@async_test
async def test_a_stop_says_goaway(transport: Any, serving: Serving) -> None:
    async with serving(transport) as served:
        client = await RawClient.connect(served.port)
        client.call(1, b"/test.Echo/Say", b"x")
        await client.receive_kind(DATA)
        stopping = asyncio.create_task(served.server.stop(5))
        last_payload = await last_goaway(client)
        last_stream, code = struct.unpack(">II", last_payload[:8])
        assert last_stream >= 1, "the answered stream counts as processed"
        assert code == 0, "NO_ERROR"
        await stopping


async def last_goaway(client: RawClient) -> bytes:
    """Reads to the end, closes when told to go away, and returns the last such word."""
    payload = b""
    while True:
        try:
            kind, flags, _, received = await asyncio.wait_for(client.receive(), 10)
        except EOFError:
            return payload
        if kind == PING and not flags & ACK:
            # gRPC core waits for this before its final GOAWAY.
            client.send(PING, ACK, 0, received)
        if kind == GOAWAY:
            payload = received
            await client.close()
