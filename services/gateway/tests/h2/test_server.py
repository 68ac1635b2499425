"""Connections that clients open: what they may do, and what ends them."""

from __future__ import annotations

import asyncio

import pytest
from services.gateway.tests.support.client import Client, done, infer, until
from services.gateway.tests.support.peer import GOAWAY, HEADERS, PREFACE, RST_STREAM, Peer, Seen, frame
from services.gateway.tests.support.rig import gateway
from services.gateway.tests.support.worker import Worker, echo, refuse

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2 import grpc


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


@pytest.mark.slow
@async_test
async def test_twenty_thousand_cancels_do_not_cut_the_connection() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        kept = client.call()
        for _ in range(200):
            seen = [client.begin(flush=False) for _ in range(100)]
            client.flush()
            for each in seen:
                client.h2.reset_stream(each.id, 8)
            client.flush()
            await asyncio.sleep(0)
        await eventually(lambda: rig.forwarder.in_flight == 1)
        worker.on_end = echo
        assert (await client.answer()).code == 0
        assert not client.goaways
        echo(worker.peer, worker.requests[0])
        assert (await done(kept)).code == 0


@pytest.mark.slow
@async_test
async def test_pings_without_calls_are_answered_and_forgiven() -> None:
    async with gateway(Worker()) as rig:
        client = await rig.client()
        for _ in range(200):
            client.h2.ping(b"12345678")
            client.flush()
            await asyncio.sleep(0.002)
        await eventually(lambda: client.pongs == 200)
        assert not client.goaways
        assert (await client.answer()).code == 0


@pytest.mark.parametrize("size", [17_000, 40_000])
@async_test
async def test_a_header_list_over_16_kib_is_refused_and_the_connection_goes_on(size: int) -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client()
        neighbour = client.begin()
        seen = await client.answer(extra=((b"x", b"y" * size),))
        assert seen.code == grpc.RESOURCE_EXHAUSTED
        assert b"16384" in (seen.header(b"grpc-message") or b"")
        client.send(neighbour, grpc.framed(infer()), end=True)
        assert (await done(neighbour)).code == 0
        assert len(worker.requests) == 1


@async_test
async def test_a_header_list_within_16_kib_reaches_the_worker() -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client()
        assert (await client.answer(extra=((b"x", b"y" * 15_000),))).code == 0
        assert worker.requests[0].header(b"x") == b"y" * 15_000


NONSENSE = {
    "no preface": None,
    "data on stream 0": frame(0, 0, 0, b"x"),
    "a frame too large": b"\xff\xff\xff\0\0\0\0\0\1",
    "bad header block": frame(HEADERS, 4, 101, b"\xff\xff\xff\xff"),
    "settings of a wrong size": frame(4, 0, 0, b"x"),
    "a window update of nothing": frame(8, 0, 0, bytes(4)),
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
@async_test
async def test_nonsense_ends_one_connection_and_harms_nobody(nonsense: bytes | None) -> None:
    worker = Worker(auto_ack=False, on_end=silent)
    async with gateway(worker) as rig:
        good = await rig.client()
        kept = good.begin()
        good.send(kept, grpc.framed(infer(size=1000))[:500])
        bad = await rig.client(preface=nonsense is not None)
        if nonsense is None:
            bad.raw(b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n")
        else:
            # What it has sent is on its way to the worker and owed to it when it errs.
            for _ in range(3):
                bad.send(bad.begin(), grpc.framed(infer(size=200_000)))
            await eventually(lambda: len(worker.requests) == 4)
            bad.raw(nonsense)
        await bad.closed.wait()
        await eventually(lambda: rig.forwarder.in_flight == 1)
        assert rig.listener is not None
        assert rig.listener.connections == 1
        good.send(kept, grpc.framed(infer(size=1000))[500:], end=True)
        await eventually(lambda: worker.requests[0].ended)
        echo(worker.peer, worker.requests[0])
        assert (await done(kept)).message == infer(size=1000)
        assert rig.lost == []
        assert rig.links["a"].in_flight == 0


@async_test
async def test_a_client_that_is_gone_leaves_nothing_behind() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        for _ in range(10):
            client.call()
        await eventually(lambda: len(worker.requests) == 10)
        client.abort()
        await eventually(lambda: all(seen.reset == 8 for seen in worker.requests))
        assert rig.forwarder.in_flight == rig.forwarder.retained == rig.links["a"].in_flight == 0


@pytest.mark.parametrize("paused", [False, True])
@async_test
async def test_an_early_answer_is_written_before_the_upload_is_stopped(paused: bool) -> None:
    worker = Worker(on_headers=lambda peer, seen: refuse(peer, seen, grpc.INVALID_ARGUMENT, ()))
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.begin()
        assert rig.listener is not None
        (server,) = rig.listener._connections
        if paused:
            server.pause_writing()
        client.send(seen, grpc.framed(infer(size=100_000))[:50_000])
        await eventually(lambda: worker.requests and rig.links["a"].in_flight == 0)
        if paused:
            assert rig.forwarder.in_flight == 1, "an answer is in flight until it has left"
            for _ in range(3):
                server.mark()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            server.resume_writing()
        await done(seen)
        await eventually(lambda: rig.forwarder.in_flight == 0)
        assert (seen.code, seen.ended) == (grpc.INVALID_ARGUMENT, True)
        await eventually(lambda: client.kinds(RST_STREAM))
        assert client.kinds(RST_STREAM)[0].payload == bytes(4)
        kinds = [f.kind for f in client.frames if f.stream == seen.id]
        assert kinds.index(HEADERS) < kinds.index(RST_STREAM)


class Tape:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False


@async_test
async def test_bytes_may_come_one_by_one() -> None:
    worker = Worker(on_end=echo)
    async with gateway(worker) as rig:
        tape = Tape()
        client = Client()
        client.connection_made(tape)
        message = infer(size=300)
        seen = client.call(message, extra=((b"grpc-timeout", b"10S"),))
        assert rig.listener is not None
        server, back = rig.listener.new_connection(), Tape()
        server.connection_made(back)
        assert tape.written.startswith(PREFACE)
        for byte in tape.written:
            server.received(bytes((byte,)))
        await eventually(lambda: not server._streams)
        await asyncio.sleep(0)
        for byte in back.written:
            client.data_received(bytes((byte,)))
        assert (seen.code, seen.message) == (0, message)
        server.connection_lost(None)


@async_test
async def test_what_comes_before_the_last_goaway_is_answered_and_nothing_after_it() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client, idle = await rig.client(), await rig.client()
        assert (await asyncio.wait_for(_pinged(idle), 5)) == 1
        seen = client.call()
        await eventually(lambda: worker.requests)
        assert rig.listener is not None
        rig.listener.drain()
        # Sent before the first GOAWAY is read: served like any other.
        late = client.call()
        await eventually(lambda: len(worker.requests) == 2)
        await eventually(lambda: len(client.goaways) == 2)
        assert [(g.last_stream_id, g.error_code) for g in client.goaways] == [(2**31 - 1, 0), (late.id, 0)]
        await idle.closed.wait()
        assert len(idle.kinds(GOAWAY)) == 2
        assert not client.closed.is_set()
        for request in worker.requests:
            echo(worker.peer, request)
        assert (await done(seen)).code == 0
        assert (await done(late)).code == 0
        await client.closed.wait()
        # One that connects now is told the same, and refused.
        fresh = await rig.client()
        refused = await done(fresh.call())
        assert refused.code == grpc.UNAVAILABLE
        assert refused.header(b"reactant-not-started") == b"1"
        await fresh.closed.wait()
        assert len(fresh.kinds(GOAWAY)) == 2


async def _pinged(client: Client) -> int:
    client.h2.ping(b"12345678")
    client.flush()
    await until(lambda: client.pongs)
    return client.pongs


@async_test
async def test_what_is_taken_for_a_client_that_has_erred_harms_nobody() -> None:
    worker = Worker(auto_ack=False, on_end=silent, window=10_000)
    async with gateway(worker) as rig:
        good = await rig.client()
        tape, bad = Tape(), Client()
        bad.connection_made(tape)
        bad.call(infer(size=60_000))
        assert rig.listener is not None
        server = rig.listener.new_connection()
        server.connection_made(Tape())
        server.received(bytes(tape.written))
        await eventually(lambda: worker.requests and len(worker.requests[0].body) == 10_000)
        kept = good.call(infer(size=1000))
        await eventually(lambda: len(worker.requests) == 2)
        # It is sent away, and its transport lingers.
        server.received(frame(0, 0, 0, b"x"))
        worker.peer.acknowledge(worker.requests[0], 10_000)
        await eventually(lambda: len(worker.requests[0].body) > 15_000)
        echo(worker.peer, worker.requests[1])
        assert (await done(kept)).code == 0
        server.connection_lost(None)
