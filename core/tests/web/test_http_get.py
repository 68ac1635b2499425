from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reactant_core.http_get import HttpError, http_get
from reactant_core.net import format_address
from reactant_core.testing import async_test, free_port

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def answering(*parts: bytes, path: Path | None = None, hold: bool = False) -> AsyncIterator[str]:
    """Answers each request with `parts`; yields the address. Forgets to hang up when told to hold."""
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /metrics?a=b HTTP/1.1\r\nHost: ")
        assert b"\r\nAccept: text/plain\r\n" in request
        writer.writelines(parts)
        if hold:
            await ended.wait()
        writer.close()

    if path is None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = format_address(*server.sockets[0].getsockname())
    else:
        server = await asyncio.start_unix_server(answer, path)
        address = f"unix:{path}"
    try:
        yield address
    finally:
        ended.set()
        server.close()
        await server.wait_closed()


async def get(address: str, limit: int = 1000) -> tuple[int, bytes]:
    headers = {"Accept": "text/plain"}
    answer = await asyncio.wait_for(
        http_get(address, "/metrics?a=b", limit_bytes=limit, headers=headers), timeout=20
    )
    return answer.status, answer.body


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hello"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b"hello"),
        (
            CHUNKED + b"",
            b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nA: b\r\n\r\n",
        ),
    ],
)
@async_test
async def test_the_framings_of_a_body(head: bytes, body: bytes) -> None:
    async with answering(head, body) as address:
        assert await get(address) == (200, b"hello")


@async_test
async def test_an_answer_with_a_length_needs_no_hang_up() -> None:
    async with answering(b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno", hold=True) as address:
        assert await get(address) == (503, b"no")


@async_test
async def test_over_a_unix_socket(tmp_path: Path) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\nhere", path=tmp_path / "s") as address:
        assert await get(address) == (200, b"here")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "cut off"),
        (b"HTTP/1.1 200 OK\r\n", "cut off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "cut off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello", "no length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\nhello", "no length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "too large"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1001), "too large"),
        (CHUNKED + 11 * (b"64\r\n" + bytes(100) + b"\r\n"), "too large"),
        (CHUNKED + b"2\r\nhello\r\n0\r\n\r\n", "no end"),
        (CHUNKED + b"2\r\nhe\r\n", "cut off"),
        (CHUNKED + b"0\r\n" + 200 * b"a: b\r\n", "trailers"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 OK\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + 9000 * b"a: bcdef\r\n" + b"\r\n", "not HTTP"),
    ],
)  # fmt: skip
@async_test
async def test_an_answer_that_is_none(answer: bytes, reason: str) -> None:
    async with answering(answer) as address:
        with pytest.raises(HttpError, match=reason):
            await get(address)


@async_test
async def test_nothing_there() -> None:
    with pytest.raises(OSError, match=r"refused|111"):
        await get(f"127.0.0.1:{free_port()}")
    for address in ("worker0", "worker0:", "worker0:x"):
        with pytest.raises(ValueError, match="is not host:port or unix:/path"):
            await get(address)


@async_test
async def test_a_silent_server_costs_the_callers_timeout_only() -> None:
    async with answering(hold=True) as address:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await http_get(address, "/metrics?a=b", limit_bytes=1, headers={"Accept": "text/plain"})
