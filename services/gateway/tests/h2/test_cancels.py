"""Requests given up: a reset goes out late and in small numbers, or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from services.gateway.tests.support.peer import RST_STREAM, Peer, Seen
from services.gateway.tests.support.upstream import REQUEST, Answer, upstream
from services.gateway.tests.support.worker import Worker, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2.client import ClientConnection


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


class Sent:
    """A request, and what `cancel` wants to know of it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.answer = Answer()
        self.stream = connection.request(REQUEST, self.answer)
        self.flush = connection.flushes
        self.at = asyncio.get_running_loop().time()

    def cancel(self) -> None:
        self.connection.cancel(self.stream, opened_at_flush=self.flush, opened_at=self.at)


@async_test
async def test_a_request_cancelled_before_it_is_written_leaves_no_frame() -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker) as (connection, _):
        given_up, kept = Sent(connection), Sent(connection)
        connection.send_data(given_up.stream, b"x" * 100, False)
        given_up.cancel()
        await eventually(lambda: worker.requests)
        assert [frame.stream for frame in worker.peer.frames if frame.stream] == [kept.stream]
        assert connection.open_streams == 1
        assert given_up.answer.told == []


@async_test
async def test_cancelled_behind_a_full_transport_it_leaves_no_frame_either() -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker) as (connection, _):
        connection.pause_writing()
        given_up = Sent(connection)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert connection.flushes > given_up.flush
        given_up.cancel()
        await eventually(lambda: connection.open_streams == 0)
        connection.resume_writing()
        kept = Sent(connection)
        await eventually(lambda: worker.requests)
        assert [frame.stream for frame in worker.peer.frames if frame.stream] == [kept.stream]


@async_test
async def test_a_reset_stays_5_ms_behind_its_headers() -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker) as (connection, _):
        sent = Sent(connection)
        await eventually(lambda: worker.requests)
        sent.cancel()
        await eventually(lambda: worker.peer.kinds(RST_STREAM))
        # The loop's clock has steps of a millisecond.
        assert worker.peer.kinds(RST_STREAM)[0].at - sent.at >= 0.004
        assert worker.requests[0].reset == 8


@async_test
async def test_at_most_16_resets_go_out_before_the_worker_has_answered() -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker) as (connection, _):
        sent = [Sent(connection) for _ in range(100)]
        await eventually(lambda: len(worker.requests) == 100)
        # One that has stalled takes up nothing; what is sent all the same comes in one read.
        worker.peer.transport.pause_reading()
        for each in sent:
            each.cancel()
        await asyncio.sleep(0.04)
        worker.peer.transport.resume_reading()
        await eventually(lambda: len(worker.peer.kinds(RST_STREAM)) == 100)
        resets = worker.peer.kinds(RST_STREAM)
        assert max(Counter(frame.read for frame in resets).values()) == 16
        assert {frame.stream for frame in resets} == {each.stream for each in sent}


@async_test
async def test_resets_make_room_as_soon_as_they_are_written() -> None:
    worker = Worker(on_end=silent, max_streams=4)
    async with upstream(worker) as (connection, _):
        sent = [Sent(connection) for _ in range(4)]
        assert not connection.has_room
        await eventually(lambda: len(worker.requests) == 4)
        for each in sent:
            each.cancel()
        # Until its reset is written the worker counts it.
        assert not connection.has_room
        await eventually(lambda: connection.has_room)
        worker.on_end = reply
        after = Sent(connection)
        connection.send_data(after.stream, b"", True)
        await after.answer.over.wait()
        assert after.answer.told[:3] == ["headers", "data", "trailers"]


@async_test
async def test_a_request_that_ends_before_its_reset_is_due_is_not_reset() -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker) as (connection, _):
        sent = Sent(connection)
        connection.send_data(sent.stream, b"", True)
        await eventually(lambda: worker.requests and worker.requests[0].ended)
        sent.cancel()
        reply(worker.peer, worker.requests[0])
        await eventually(lambda: connection.open_streams == 0)
        other = Sent(connection)
        await asyncio.sleep(0.02)
        assert worker.peer.kinds(RST_STREAM) == []
        assert sent.answer.told == []
        assert connection.open_streams == 1
        other.cancel()


@pytest.mark.parametrize("ending", ["loss", "abort"])
@async_test
async def test_resets_that_wait_end_with_the_connection(ending: str) -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker) as (connection, owner):
        sent = Sent(connection)
        await eventually(lambda: worker.requests)
        sent.cancel()
        if ending == "loss":
            worker.peer.abort()
        else:
            connection.abort()
        await owner.over.wait()
        await asyncio.sleep(0.01)
        sent.cancel()
        assert sent.answer.told == []
