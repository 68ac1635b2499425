"""One GET over HTTP/1.1, for probes and scrapes inside a node. No redirects, no TLS, no compression."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

_READ_BYTES: Final = 65536
UNIX_PREFIX: Final = "unix:"


@final
class HttpError(ValueError):
    """The answer is not HTTP, is cut off, or is larger than allowed; the text says which."""


@final
@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer.

    Attributes:
        status: such as 200.
        headers: by lower-case name; of a repeated one the last.
        body: whole.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


async def http_get(
    address: str, path: str, *, limit_bytes: int, headers: Mapping[str, str] | None = None
) -> HttpAnswer:
    """GETs `path` from `address`, on a connection of its own. Waits without end: use a timeout.

    Args:
        address: `host:port`, `[v6]:port` or `unix:/path`.
        path: with its query.
        limit_bytes: the largest body taken; at most 64 KiB of headers.
        headers: further request headers.

    Raises:
        OSError: nothing listens there, or the connection broke.
        HttpError: not HTTP/1, cut off, or too large.
        ValueError: `address` is none.
    """
    reader, writer = await _connect(address)
    try:
        host = "localhost" if address.startswith(UNIX_PREFIX) else address
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
        return await _answer(reader, limit_bytes)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise HttpError("the answer is cut off or not HTTP") from error
    finally:
        # Not close(): nothing is left to send, and its end must not wait for the peer.
        writer.transport.abort()


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith(UNIX_PREFIX):
        return await asyncio.open_unix_connection(address.removeprefix(UNIX_PREFIX))
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ValueError(f"{address!r} is not host:port or unix:/path")
    return await asyncio.open_connection(host.strip("[]"), int(port))


async def _answer(reader: asyncio.StreamReader, limit: int) -> HttpAnswer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit() and len(status) == 3):
        raise HttpError("the answer is not HTTP/1")
    headers = {
        name.strip().lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)
    }
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunked(reader, limit)
    elif (length := headers.get("content-length")) is not None:
        body = await reader.readexactly(_bounded(length, 10, limit))
    else:
        body = await _to_the_end(reader, limit)
    return HttpAnswer(int(status), headers, body)


async def _chunked(reader: asyncio.StreamReader, limit: int) -> bytes:
    body = bytearray()
    while size := _bounded(await _line(reader), 16, limit - len(body)):
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise HttpError("a chunk has no end")
    # Trailers say nothing we ask for; an endless list of them would be no answer.
    for _ in range(100):
        if not await _line(reader):
            return bytes(body)
    raise HttpError("too many trailers")


async def _line(reader: asyncio.StreamReader) -> str:
    line = await reader.readuntil(b"\r\n")
    return line[:-2].decode("latin-1").partition(";")[0].strip()


def _bounded(text: str, base: int, limit: int) -> int:
    try:
        size = int(text, base) if text.isascii() and text.isalnum() else -1
    except ValueError:
        size = -1
    if size < 0:
        raise HttpError(f"{text[:40]!r} is no length")
    if size > limit:
        raise HttpError("the answer is too large")
    return size


async def _to_the_end(reader: asyncio.StreamReader, limit: int) -> bytes:
    body = bytearray()
    while chunk := await reader.read(_READ_BYTES):
        body += chunk
        if len(body) > limit:
            raise HttpError("the answer is too large")
    return bytes(body)
