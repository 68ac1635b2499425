"""Calls that go, as they are, to the gateway's own server."""

from __future__ import annotations

import pytest
from services.gateway.tests.support.client import done
from services.gateway.tests.support.peer import Peer, Seen
from services.gateway.tests.support.rig import gateway
from services.gateway.tests.support.worker import HEAD, Worker, echo, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2 import grpc

INDEX = b"/inference.GRPCInferenceService/RepositoryIndex"
WATCH = b"/grpc.health.v1.Health/Watch"


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


@async_test
async def test_a_call_goes_through_unchanged_in_both_directions() -> None:
    async with gateway(Worker()) as rig:
        rig.local.on_end = echo
        client = await rig.client()
        extra = ((b"grpc-timeout", b"5S"), (b"x-bin", b"AAE"), (b"x-bin", b"/w"))
        seen = await client.answer(b"m" * 1_000_000, INDEX, extra)
        assert (seen.code, seen.message) == (0, b"m" * 1_000_000)
        (request,) = rig.local.requests
        assert request.headers[-3:] == extra
        assert request.header(b":path") == INDEX
        assert request.header(b"reactant-hop") is None
        assert rig.workers["a"].requests == []
        assert rig.forwarder.in_flight == 0


@async_test
async def test_a_stream_of_answers_comes_as_it_goes() -> None:
    async with gateway(Worker()) as rig:
        rig.local.on_end = lambda peer, seen: peer.h2.send_response(seen.id, HEAD)
        client = await rig.client()
        seen = client.call(b"", WATCH)
        await eventually(lambda: seen.headers)
        for n in range(3):
            rig.local.peer.h2.send_data(rig.local.requests[0].id, grpc.framed(b"%d" % n))
            rig.local.peer.flush()
            await eventually(lambda n=n: len(seen.body) == 6 * (n + 1))  # type: ignore[misc]
        # One that watches is not in anybody's way.
        assert rig.forwarder.in_flight == 0
        client.reset(seen.id)
        await eventually(lambda: rig.local.requests[0].reset == 8)


@async_test
async def test_calls_count_against_the_cap() -> None:
    async with gateway(Worker(), max_in_flight=3) as rig:
        rig.local.on_end = silent
        client = await rig.client()
        for _ in range(3):
            client.call(b"", INDEX)
        await eventually(lambda: len(rig.local.requests) == 3)
        assert (await client.answer(b"", INDEX)).code == grpc.RESOURCE_EXHAUSTED
        for request in rig.local.requests:
            reply(rig.local.peer, request)
        await eventually(lambda: rig.forwarder.in_flight == 0)
        rig.local.on_end = reply
        assert (await client.answer(b"", INDEX)).code == 0


@pytest.mark.parametrize("begun", [False, True])
@async_test
async def test_a_server_that_is_gone_is_unavailable(begun: bool) -> None:
    def half(peer: Peer, seen: Seen) -> None:
        if begun:
            peer.h2.send_response(seen.id, HEAD)
            peer.h2.send_data(seen.id, b"\0")

    async with gateway(Worker()) as rig:
        rig.local.on_end = half
        client = await rig.client()
        seen = client.call(b"", INDEX)
        await eventually(lambda: seen.body if begun else rig.local.requests)
        await rig.local.stop()
        assert (await done(seen)).code == grpc.UNAVAILABLE
        assert (await client.answer(b"", INDEX)).code == grpc.UNAVAILABLE
        assert rig.forwarder.in_flight == 0
        assert (await client.answer()).code == 0


@async_test
async def test_a_connection_that_takes_no_more_fails_the_call_and_nothing_else() -> None:
    async with gateway(Worker()) as rig:
        client = await rig.client()
        kept = client.begin()
        assert rig.listener is not None
        up = rig.listener._local.acquire()
        assert up is not None
        # Ended by a fault of the peer that has been read and not yet been acted on.
        up._h2.terminate_connection()
        assert (await client.answer(b"", INDEX)).code == grpc.UNAVAILABLE
        await eventually(lambda: rig.forwarder.in_flight == 1)
        client.reset(kept.id)
        assert (await client.answer()).code == 0


@pytest.mark.parametrize("method", [b"GET", b"PUT"])
@async_test
async def test_what_is_no_grpc_call_is_refused(method: bytes) -> None:
    async with gateway(Worker()) as rig:
        client = await rig.client()
        head = ((b":method", method), (b":scheme", b"http"), (b":path", INDEX), (b":authority", b"a"))
        seen = Seen(client.h2.send_request(head, end_stream=True))
        client.streams[seen.id] = seen
        client.flush()
        assert (await done(seen)).code == grpc.INVALID_ARGUMENT
        assert rig.local.requests == []
