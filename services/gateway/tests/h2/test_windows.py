"""Flow control: bytes are acknowledged when the other side has taken them, and all of them are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import ngh2
import pytest
from ngh2 import Setting
from services.gateway.tests.support.client import Client, done, infer, until
from services.gateway.tests.support.peer import DATA, Peer, Seen, frame
from services.gateway.tests.support.rig import Rig, gateway
from services.gateway.tests.support.worker import HEAD, Worker, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2 import connection as connection_module
from reactant_gateway.h2 import grpc

KIB, MIB = 1024, 1024 * 1024
# What a client can have sent that a worker has not taken: a window of each hop, and a transport's buffer.
HELD = 65_535 + 256 * KIB + 512 * KIB


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


def big_reply(peer: Peer, seen: Seen) -> None:
    reply(peer, seen, bytes(8 * MIB))


async def settled(read: Callable[[], int]) -> None:
    """Until nothing moves any more."""
    before, still = read(), 0
    while still < 20:
        await asyncio.sleep(0.002)
        now = read()
        still = still + 1 if now == before else 0
        before = now


@async_test
async def test_a_worker_that_takes_nothing_stops_the_client() -> None:
    worker = Worker(auto_ack=False, on_end=lambda peer, seen: reply(peer, seen, b"%d" % len(seen.message)))
    async with gateway(worker) as rig:
        client = await rig.client()
        body = grpc.framed(infer(size=8 * MIB))
        seen = client.begin()
        client.send(seen, body, end=True)
        await settled(client.h2.queued_body_size)
        assert len(body) - client.h2.queued_body_size() <= HELD
        taken = 0
        while not worker.requests[0].ended:
            got = worker.peer.received - taken
            taken += got
            worker.peer.acknowledge(worker.requests[0], got)
            await asyncio.sleep(0)
        assert (await done(seen)).message == b"%d" % (len(body) - 5)
        assert rig.forwarder.retained == 0


@async_test
async def test_a_client_that_takes_nothing_stops_the_worker() -> None:
    worker = Worker(on_end=big_reply)
    async with gateway(worker) as rig:
        client = await rig.client(auto_ack=False)
        seen = client.call()
        await eventually(lambda: worker.requests)
        await settled(worker.peer.h2.queued_body_size)
        assert 8 * MIB - worker.peer.h2.queued_body_size() <= HELD
        taken = 0
        while not seen.ended:
            got = client.received - taken
            taken += got
            client.acknowledge(seen, got)
            await asyncio.sleep(0)
        assert len(seen.message) == 8 * MIB


@pytest.mark.slow
@async_test
async def test_a_client_that_does_not_read_its_socket_stops_the_worker() -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client(settings={int(Setting.INITIAL_WINDOW_SIZE): 64 * MIB})
        client.transport.pause_reading()
        worker.on_end = lambda peer, seen: reply(peer, seen, bytes(MIB))
        calls = [client.call() for _ in range(64)]
        await eventually(lambda: len(worker.requests) == 64)
        await settled(worker.peer.h2.queued_body_size)
        (server,) = rig.listener._connections  # type: ignore[union-attr]
        # 16 MiB wait in the library; the transport is given no more than a piece beyond its mark.
        assert server._h2.queued_body_size() > 8 * MIB
        assert server._transport.get_write_buffer_size() <= 512 * KIB + 64 * KIB  # type: ignore[union-attr]
        client.transport.resume_reading()
        for seen in calls:
            assert len((await done(seen)).message) == MIB


@async_test
async def test_requests_that_a_worker_does_not_take_leave_room_for_others() -> None:
    def look(peer: Peer, seen: Seen) -> None:
        if len(seen.body) < 1000:
            reply(peer, seen)

    worker = Worker(auto_ack=False, on_end=look)
    async with gateway(worker) as rig:
        client = await rig.client()
        stalled = [client.call(infer(size=MIB)) for _ in range(40)]
        await settled(client.h2.queued_body_size)
        assert (await client.answer()).code == 0
        assert not any(seen.ended for seen in stalled)


@pytest.mark.slow
@async_test
async def test_answers_that_a_client_does_not_take_leave_room_for_others() -> None:
    worker = Worker(on_end=big_reply)
    async with gateway(worker) as rig:
        client = await rig.client(auto_ack=False)
        stalled = [client.call() for _ in range(40)]
        await settled(worker.peer.h2.queued_body_size)
        worker.on_end = reply
        assert (await client.answer()).message == b"done"
        assert not any(seen.ended for seen in stalled)


@pytest.fixture(name="narrow")
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection window so small that what leaks is missed soon."""
    monkeypatch.setattr(connection_module, "CONNECTION_WINDOW_BYTES", MIB)


async def windows_are_whole(rig: Rig, client: Client, worker: Worker) -> None:
    """Both windows are good for four megabytes each way."""
    worker.on_headers, worker.on_end = None, lambda peer, seen: reply(peer, seen, seen.message)
    for peer in worker.peers:
        peer.auto_ack = True
        peer.on_headers = silent
    body = infer(size=4 * MIB)
    assert (await client.answer(body)).message == body
    assert rig.forwarder.in_flight == rig.forwarder.retained == 0


@pytest.mark.slow
@pytest.mark.parametrize("by", ["client", "worker", "deadline"])
@async_test
async def test_windows_are_whole_after_uploads_cut_short(narrow: None, by: str) -> None:
    worker = Worker(auto_ack=False, on_end=silent)
    extra = ((b"grpc-timeout", b"5m"),) if by == "deadline" else ()
    async with gateway(worker) as rig:
        client = await rig.client()
        for n in range(200 if by == "deadline" else 1000):
            seen = client.begin(extra=extra, flush=False)
            client.send(seen, grpc.framed(infer(size=200 * KIB))[: 120 * KIB])
            if by == "deadline":
                assert (await done(seen)).code == grpc.DEADLINE_EXCEEDED
                continue
            await until(lambda n=n: len(worker.requests) > n)  # type: ignore[misc]
            if by == "client":
                client.reset(seen.id)
            else:
                worker.peer.reset(worker.requests[n].id, 2)
                assert (await done(seen)).code == grpc.INTERNAL
        await windows_are_whole(rig, client, worker)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["client", "worker"])
@async_test
async def test_windows_are_whole_after_answers_cut_short(narrow: None, by: str) -> None:
    def begin(peer: Peer, seen: Seen) -> None:
        peer.h2.send_response(seen.id, HEAD)
        peer.h2.send_data(seen.id, grpc.framed(bytes(200 * KIB))[: 120 * KIB])
        peer.flush()

    worker = Worker(on_end=begin)
    async with gateway(worker) as rig:
        client = await rig.client(auto_ack=False)
        for _ in range(1000):
            seen = client.call()
            await until(lambda seen=seen: seen.body)  # type: ignore[misc]
            if by == "client":
                client.reset(seen.id)
                client.acknowledge(seen, len(seen.body))
                await until(lambda: rig.forwarder.in_flight == 0)
                # It has not been told yet, or only just.
                with suppress(ngh2.NGH2Error):
                    worker.peer.h2.send_data(worker.requests[-1].id, bytes(80 * KIB))
                    worker.peer.flush()
            else:
                worker.peer.reset(worker.requests[-1].id, 2)
                client.auto_ack = True
                client.acknowledge(seen, len(seen.body))
                assert (await done(seen)).code == grpc.INTERNAL
                client.auto_ack = False
        client.auto_ack = True
        await windows_are_whole(rig, client, worker)


@pytest.mark.slow
@async_test
async def test_windows_are_whole_after_connections_to_a_worker_died(narrow: None) -> None:
    worker = Worker(auto_ack=False, on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        for n in range(60):
            assert await rig.links["a"].connect()
            seen = client.begin(flush=False)
            client.send(seen, grpc.framed(infer(size=200 * KIB))[: 120 * KIB])
            await eventually(partial(lambda n: len(worker.requests) > n and worker.requests[n].body, n))
            worker.peer.abort()
            assert (await done(seen)).code == grpc.UNAVAILABLE
        assert await rig.links["a"].connect()
        await windows_are_whole(rig, client, worker)


@pytest.mark.slow
@async_test
async def test_windows_are_whole_after_refusals_in_the_midst_of_an_upload(narrow: None) -> None:
    worker = Worker()
    async with gateway(worker, max_request_bytes=5 * MIB) as rig:
        client = await rig.client()
        for _ in range(100):
            seen = client.begin(flush=False)
            # Refused by its length prefix; the rest has been sent already.
            client.send(seen, b"\0\xff" + bytes(120 * KIB))
            assert (await done(seen)).code == grpc.RESOURCE_EXHAUSTED
        await windows_are_whole(rig, client, worker)


@async_test
async def test_padding_is_given_back(narrow: None) -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.begin()
        # A byte of the stream's body and 255 of padding, over and over: 2 MiB that nobody passes on.
        client.raw(frame(DATA, 0x8, seen.id, b"\xff\0" + bytes(255)) * 4)
        await asyncio.sleep(0)
        for _ in range(8 * KIB):
            client.raw(frame(DATA, 0x8, seen.id, b"\xff" + bytes(255)))
        client.raw(frame(0x3, 0, seen.id, (8).to_bytes(4, "big")))
        await eventually(lambda: rig.forwarder.in_flight == 0)
        other = await rig.client()
        await windows_are_whole(rig, other, worker)
