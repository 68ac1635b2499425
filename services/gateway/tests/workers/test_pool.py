"""The connections to one worker: when another is opened, and what counts as a loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from services.gateway.tests.support.peer import GOAWAY, Peer, Seen, frame
from services.gateway.tests.support.rig import no_faults
from services.gateway.tests.support.upstream import REQUEST, Answer
from services.gateway.tests.support.worker import Worker

from reactant_core.testing import async_test, eventually
from reactant_gateway.workers import pool
from reactant_gateway.workers.pool import LinkSettings, WorkerLink

LONG = LinkSettings(ping_seconds=3600.0)


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


@asynccontextmanager
async def link_to(
    worker: Worker, settings: LinkSettings = LONG, path: str | None = None
) -> AsyncIterator[tuple[WorkerLink, list[str]]]:
    await worker.start(path)
    lost: list[str] = []
    with no_faults():
        link = WorkerLink(worker.name, worker.address, settings, lost.append)
        try:
            yield link, lost
        finally:
            await link.close()
            await worker.stop()


def fill(link: WorkerLink) -> int:
    """Opens requests for as long as there is room at once."""
    count = 0
    while (connection := link.acquire()) is not None:
        connection.request(REQUEST, Answer())
        count += 1
    return count


@async_test
async def test_one_connection_serves_until_the_worker_has_no_stream_left() -> None:
    worker = Worker(on_end=silent, max_streams=5)
    async with link_to(worker) as (link, lost):
        assert (link.connected, link.acquire()) == (False, None)
        assert await link.connect()
        assert await link.connect()
        counts = []
        for connections in range(1, 5):
            await eventually(partial(lambda n: len(worker.peers) == n and link.acquire(), connections))
            counts.append(fill(link))
        assert counts == [5, 5, 5, 5]
        await asyncio.sleep(0.02)
        assert link.acquire() is None
        assert len(worker.peers) == 4
        await eventually(lambda: sum(len(peer.streams) for peer in worker.peers) == 20)
        assert lost == []


@async_test
async def test_the_cap_of_requests_comes_before_further_connections() -> None:
    worker = Worker(on_end=silent, max_streams=2)
    async with link_to(worker, LinkSettings(max_in_flight=2)) as (link, _):
        await link.connect()
        link.in_flight = 2
        assert link.acquire() is None
        await asyncio.sleep(0.01)
        assert len(worker.peers) == 1
        link.in_flight = 1
        assert link.acquire() is not None


@async_test
async def test_those_who_connect_at_once_share_one_dial() -> None:
    worker = Worker()
    async with link_to(worker) as (link, _):
        assert await asyncio.gather(*(link.connect() for _ in range(10))) == [True] * 10
        assert len(worker.peers) == 1


@async_test
async def test_a_unix_socket_does_as_well(tmp_path: Path) -> None:
    async with link_to(Worker(), path=str(tmp_path / "w.sock")) as (link, _):
        assert await link.connect()


@async_test
async def test_a_refused_connection_is_a_loss() -> None:
    worker = Worker()
    async with link_to(worker) as (link, lost):
        await worker.stop()
        assert not await link.connect()
        assert len(lost) == 1


@async_test
async def test_a_connection_reset_is_a_loss_told_once() -> None:
    worker = Worker()
    async with link_to(worker) as (link, lost):
        await link.connect()
        worker.peer.abort()
        await eventually(lambda: lost)
        assert (link.connected, link.acquire()) == (False, None)
        await eventually(lambda: link.connected)
        assert len(lost) == 1


@pytest.mark.parametrize("by", ["silence", "another protocol"])
@async_test
async def test_what_does_not_speak_http2_is_a_loss(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(pool, "DIAL_SECONDS", 0.05)
    worker = Worker(preface=False)
    async with link_to(worker) as (link, lost):
        connecting = asyncio.ensure_future(link.connect())
        if by != "silence":
            await eventually(lambda: worker.peers and worker.peer.transport)
            worker.peer.raw(b"220 mail ready\r\n")
        assert not await connecting
        assert len(lost) == 1
        assert ("within 0.05 s" in lost[0]) == (by == "silence")
        await worker.peer.closed.wait()


@async_test
async def test_goaway_is_no_loss_and_another_connection_is_opened_at_once() -> None:
    worker = Worker(on_end=silent)
    async with link_to(worker) as (link, lost):
        await link.connect()
        old = link.acquire()
        assert old is not None
        old.request(REQUEST, Answer())
        await eventually(lambda: worker.requests)
        worker.peer.raw(frame(GOAWAY, 0, 0, (2**31 - 1).to_bytes(4, "big") + bytes(4)))
        await eventually(lambda: len(worker.peers) == 2 and link.connected)
        assert link.acquire() is not old
        worker.peers[0].abort()
        await eventually(lambda: old.closed)
        assert lost == []


@async_test
async def test_a_worker_that_goes_away_and_refuses_is_lost() -> None:
    worker = Worker()
    async with link_to(worker) as (link, lost):
        await link.connect()
        peer = worker.peer
        assert worker._server is not None
        worker._server.close()
        peer.raw(frame(GOAWAY, 0, 0, bytes(8)))
        await eventually(lambda: lost)
        assert len(lost) == 1


@async_test
async def test_closing_is_no_loss_and_ends_all_connections() -> None:
    worker = Worker(on_end=silent, max_streams=1)
    async with link_to(worker) as (link, lost):
        await link.connect()
        fill(link)
        await eventually(lambda: len(worker.peers) == 2 and link.acquire())
        await link.close()
        await asyncio.gather(*(peer.closed.wait() for peer in worker.peers))
        assert (lost, link.acquire()) == ([], None)


@async_test
async def test_closing_ends_a_connection_that_is_being_made() -> None:
    worker = Worker(preface=False)
    async with link_to(worker) as (link, lost):
        connecting = asyncio.ensure_future(link.connect())
        await eventually(lambda: worker.peers and worker.peer.transport)
        await link.close()
        await worker.peer.closed.wait()
        connecting.cancel()
        assert lost == []
