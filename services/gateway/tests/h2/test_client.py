"""Connections to a worker: limits of streams, GOAWAY, silence, nonsense."""

from __future__ import annotations

import asyncio

import pytest
from ngh2 import Setting
from services.gateway.tests.support.peer import GOAWAY, HEADERS, PING, Peer, Seen, frame
from services.gateway.tests.support.upstream import REQUEST, Answer, upstream
from services.gateway.tests.support.worker import HEAD, Worker, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2.client import ClientConnection


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


def ask(connection: ClientConnection, body: bytes = b"x", *, end: bool = True) -> tuple[int, Answer]:
    answer = Answer()
    stream = connection.request(REQUEST, answer)
    connection.send_data(stream, body, end)
    answer.release = lambda: connection.release(stream)
    return stream, answer


@async_test
async def test_the_workers_limit_of_streams_is_counted() -> None:
    worker = Worker(on_end=silent, max_streams=3)
    async with upstream(worker) as (connection, _):
        streams = []
        while connection.has_room:
            streams.append(ask(connection)[0])
        assert len(streams) == connection.open_streams == 3
        await eventually(lambda: len(worker.requests) == 3)
        reply(worker.peer, worker.requests[0])
        await eventually(lambda: connection.has_room)
        assert connection.open_streams == 2


@async_test
async def test_a_limit_may_change() -> None:
    worker = Worker(on_end=silent, max_streams=1)
    async with upstream(worker) as (connection, _):
        ask(connection)
        assert not connection.has_room
        worker.peer.h2.update_settings({int(Setting.MAX_CONCURRENT_STREAMS): 2})
        worker.peer.flush()
        await eventually(lambda: connection.has_room)
        worker.peer.h2.update_settings({int(Setting.INITIAL_WINDOW_SIZE): 70_000})
        worker.peer.flush()
        await asyncio.sleep(0.01)
        assert connection.has_room


@async_test
async def test_goaway_ends_what_lies_above_the_last_stream_and_lets_the_rest_finish() -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker) as (connection, owner):
        first, below = ask(connection)
        await eventually(lambda: worker.requests)
        _, above = ask(connection)
        await eventually(lambda: len(worker.requests) == 2)
        _, unwritten = ask(connection)
        worker.peer.raw(frame(GOAWAY, 0, 0, first.to_bytes(4, "big") + bytes(4)))
        await above.over.wait()
        await unwritten.over.wait()
        assert above.told == unwritten.told == ["unprocessed"]
        assert (owner.away, connection.usable, connection.sent_away) == (1, False, True)
        reply(worker.peer, worker.requests[0])
        await owner.over.wait()
        assert below.told == ["headers", "data", "trailers"]


@async_test
async def test_a_request_behind_a_full_transport_is_unprocessed_after_goaway() -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker) as (connection, owner):
        connection.pause_writing()
        _, answer = ask(connection)
        worker.peer.raw(frame(GOAWAY, 0, 0, bytes(8)))
        await eventually(lambda: owner.away)
        connection.resume_writing()
        await answer.over.wait()
        assert answer.told == ["unprocessed"]
        await owner.over.wait()


@async_test
async def test_an_idle_connection_that_is_sent_away_is_closed() -> None:
    worker = Worker()
    async with upstream(worker) as (connection, owner):
        worker.peer.raw(frame(GOAWAY, 0, 0, (2**31 - 1).to_bytes(4, "big") + bytes(4)))
        await owner.over.wait()
        await worker.peer.closed.wait()
        assert owner.away == 1
        with pytest.raises(ConnectionError):
            connection.request(REQUEST, Answer())


@async_test
async def test_goaway_with_an_error_is_no_announcement() -> None:
    worker = Worker()
    async with upstream(worker) as (connection, owner):
        worker.peer.raw(frame(GOAWAY, 0, 0, bytes(4) + (11).to_bytes(4, "big")))
        await owner.over.wait()
        assert not connection.sent_away
        assert owner.reasons == ["the worker ended it with HTTP/2 error 11"]


@pytest.mark.parametrize("code", [0, 2, 8])
@async_test
async def test_a_reset_after_the_trailers_is_nothing(code: int) -> None:
    def end_early(peer: Peer, seen: Seen) -> None:
        peer.h2.send_response(seen.id, HEAD)
        peer.h2.send_trailers(seen.id, ((b"grpc-status", b"0"),))
        peer.flush()
        peer.reset(seen.id, code)

    worker = Worker(on_headers=end_early)
    async with upstream(worker) as (connection, _):
        _, answer = ask(connection, end=False)
        await answer.over.wait()
        await eventually(lambda: connection.open_streams == 0)
        assert answer.told == ["headers", "trailers"]


@async_test
async def test_a_reset_is_told_with_its_code() -> None:
    worker = Worker(on_end=lambda peer, seen: peer.reset(seen.id, 7))
    async with upstream(worker) as (connection, _):
        _, answer = ask(connection)
        await eventually(lambda: connection.open_streams == 0)
        assert answer.told == ["reset 7"]


@pytest.mark.slow
@async_test
async def test_a_worker_that_falls_silent_is_lost() -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker, ping_seconds=0.02, ping_timeout_seconds=0.1) as (connection, owner):
        _, answer = ask(connection)
        await eventually(lambda: len(worker.peer.kinds(PING)) > 3)
        assert not owner.over.is_set()
        worker.peer.transport.pause_reading()
        await owner.over.wait()
        assert answer.told == ["lost: no answer to a PING for 0.1 s"]
        assert owner.reasons == ["no answer to a PING for 0.1 s"]


@async_test
async def test_what_is_not_http2_is_no_connection() -> None:
    worker = Worker(preface=False)
    async with upstream(worker, establish=False) as (connection, owner):
        await eventually(lambda: worker.peers and worker.peer.transport)
        worker.peer.raw(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        with pytest.raises(ConnectionError, match="session has ended"):
            await connection.established
        await owner.over.wait()


NONSENSE = {
    "data on stream 0": frame(0, 0, 0, b"x"),
    "a frame too large": b"\xff\xff\xff\0\0\0\0\0\1",
    "bad header block": frame(HEADERS, 4, 1, b"\xff\xff\xff\xff"),
    "headers too large": frame(HEADERS, 4, 1, b"\x88\x00\x01x\x7f\xf1\x8e\x04" + bytes(65_000)),
    "a push": frame(5, 4, 1, (2).to_bytes(4, "big") + b"\x88"),
    "settings of a wrong size": frame(4, 0, 0, b"x"),
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
@async_test
async def test_nonsense_ends_the_connection_and_all_on_it_are_told(nonsense: bytes) -> None:
    worker = Worker(on_end=silent)
    async with upstream(worker) as (connection, owner):
        answers = [ask(connection, end=False)[1] for _ in range(3)]
        await eventually(lambda: len(worker.requests) == 3)
        worker.peer.raw(nonsense)
        await owner.over.wait()
        assert all(answer.told[-1].startswith("lost") for answer in answers)
        assert owner.reasons != ["closed by peer"]
        assert not connection.usable


@async_test
async def test_what_the_socket_never_had_is_unsent() -> None:
    worker = Worker(on_end=silent, window=1000)
    async with upstream(worker) as (connection, owner):
        stream, _ = ask(connection, bytes(100))
        assert connection.is_unsent(stream, marked_at_flush=connection.flushes)
        marked = connection.flushes
        large, _ = ask(connection, bytes(5000))
        await eventually(lambda: worker.requests and worker.requests[0].ended)
        assert not connection.is_unsent(stream, marked_at_flush=marked)
        assert connection.is_unsent(large, marked_at_flush=marked) == (
            connection._h2.queued_body_size(large) > 0
        )
        worker.peer.abort()
        await owner.over.wait()
        assert not connection.is_unsent(stream, marked_at_flush=marked)
