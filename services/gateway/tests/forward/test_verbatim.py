"""What goes through unchanged, and what the gateway says itself."""

from __future__ import annotations

import hashlib

import pytest
from services.gateway.tests.support.client import STREAM_INFER, done, infer
from services.gateway.tests.support.peer import HEADERS, RST_STREAM, Headers, Peer, Seen
from services.gateway.tests.support.rig import gateway
from services.gateway.tests.support.worker import HEAD, Worker, echo, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2 import grpc

MIB = 1 << 20
METADATA: Headers = (
    (b"user-agent", b"grpc-python/1.81"),
    (b"grpc-accept-encoding", b"identity, deflate, gzip"),
    (b"trace-bin", b"AAECAwT/"),
    (b"dup", b"one"),
    (b"dup", b"two"),
    (b"dup-bin", b"AA"),
    (b"dup-bin", b"/w=="),
    (b"empty", b""),
)


@async_test
async def test_metadata_of_a_request_reaches_the_worker_as_it_came() -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client()
        await client.answer(extra=METADATA)
        (seen,) = worker.requests
        assert seen.headers == (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/inference.GRPCInferenceService/ModelInfer"),
            (b":authority", b"gateway"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            *METADATA,
            (b"reactant-hop", b"1"),
        )
        # The same headers again are read from memory.
        await client.answer(extra=METADATA)
        assert worker.requests[1].headers == seen.headers


@pytest.mark.parametrize("only", [False, True])
@async_test
async def test_metadata_of_an_answer_reaches_the_client_as_it_came(only: bool) -> None:
    trailers = ((b"grpc-status", b"5"), (b"grpc-message", b"no%20model %C3%A9"), *METADATA)

    def answer(peer: Peer, seen: Seen) -> None:
        if only:
            peer.h2.send_response(seen.id, (*HEAD, *trailers), end_stream=True)
        else:
            peer.h2.send_response(seen.id, (*HEAD, *METADATA))
            peer.h2.send_data(seen.id, grpc.framed(b"partial"))
            peer.h2.send_trailers(seen.id, trailers)

    async with gateway(Worker(on_end=answer)) as rig:
        seen = await (await rig.client()).answer()
        assert seen.headers == ((*HEAD, *trailers) if only else (*HEAD, *METADATA))
        assert seen.trailers == (() if only else trailers)
        assert seen.message == (b"" if only else b"partial")


@pytest.mark.parametrize(
    "head", [HEAD, ((b":status", b"502"), (b"content-type", b"text/html"))], ids=["grpc", "http"]
)
@pytest.mark.parametrize("body", [b"", grpc.framed(b"x"), b"<html>"], ids=["empty", "message", "page"])
@async_test
async def test_an_end_without_a_status_is_internal(head: Headers, body: bytes) -> None:
    def answer(peer: Peer, seen: Seen) -> None:
        peer.h2.send_response(seen.id, head, end_stream=not body)
        if body:
            peer.h2.send_data(seen.id, body, end_stream=True)

    async with gateway(Worker(on_end=answer), max_response_bytes=2**32) as rig:
        seen = await (await rig.client()).answer()
        assert seen.code == grpc.INTERNAL
        assert b"without a status" in (seen.header(b"grpc-message") or b"")
        assert rig.links["a"].in_flight == rig.forwarder.in_flight == 0


@async_test
async def test_trailers_without_a_status_are_internal() -> None:
    def answer(peer: Peer, seen: Seen) -> None:
        peer.h2.send_response(seen.id, HEAD)
        peer.h2.send_trailers(seen.id, ((b"x", b"y"),))

    async with gateway(Worker(on_end=answer)) as rig:
        seen = await (await rig.client()).answer()
        assert seen.code == grpc.INTERNAL


@pytest.mark.slow
@async_test
async def test_64_mib_go_through_in_both_directions_without_being_held() -> None:
    worker = Worker(on_end=echo)
    async with gateway(worker) as rig:
        client = await rig.client()
        message = infer(size=64 * MIB)
        held = []
        assert rig.listener is not None
        (server,) = rig.listener._connections
        flush = server.flush

        def watched() -> None:
            flush()
            connection = rig.links["a"]._connections[0]
            held.append(server._h2.queued_body_size() + connection._h2.queued_body_size())
            held.append(rig.forwarder.retained)

        server.flush = watched  # type: ignore[method-assign]
        seen = await done(client.call(message), 60)
        assert hashlib.sha256(seen.message).digest() == hashlib.sha256(message).digest()
        assert max(held) <= 4 * MIB
        assert len(held) > 50


@async_test
async def test_a_request_of_many_windows_streams_through() -> None:
    worker = Worker(window=10_000, on_end=echo)
    async with gateway(worker) as rig:
        client = await rig.client()
        message = infer(size=6 * MIB)
        assert (await client.answer(message)).message == message


@pytest.mark.parametrize("whole", [True, False])
@async_test
async def test_a_request_over_the_limit_is_refused_and_the_connection_goes_on(whole: bool) -> None:
    worker = Worker()
    async with gateway(worker, max_request_bytes=100_000) as rig:
        client = await rig.client()
        seen = client.begin()
        client.send(seen, grpc.framed(infer(size=MIB))[: None if whole else 1000], end=whole)
        await done(seen)
        assert seen.code == grpc.RESOURCE_EXHAUSTED
        assert b"100000" in (seen.header(b"grpc-message") or b"")
        assert worker.requests == []
        assert (await client.answer(infer(size=90_000))).code == 0


@async_test
async def test_a_request_exactly_at_the_limit_is_taken() -> None:
    message = infer(size=1000)
    async with gateway(Worker(), max_request_bytes=len(message)) as rig:
        client = await rig.client()
        assert (await client.answer(message)).code == 0
        assert (await client.answer(message + b"\x1a\0")).code == grpc.RESOURCE_EXHAUSTED


@async_test
async def test_an_answer_over_the_limit_is_refused_and_the_connections_go_on() -> None:
    worker = Worker(on_end=lambda peer, seen: reply(peer, seen, bytes(MIB)))
    async with gateway(worker, max_response_bytes=100_000) as rig:
        client = await rig.client()
        seen = await client.answer()
        assert (seen.code, seen.message) == (grpc.RESOURCE_EXHAUSTED, b"")
        await eventually(lambda: worker.requests[0].closed)
        worker.on_end = reply
        assert (await client.answer()).code == 0
        assert (len(worker.peers), rig.lost) == (1, [])


BAD = {
    "nothing": (b"", 12),
    "half a prefix": (b"\0\0", 12),
    "half a message": (grpc.framed(infer(size=100))[:20], 3),
    "two messages": (grpc.framed(infer()) * 2, 12),
    "junk": (grpc.framed(b"\xff" * 20), 3),
    "no name": (grpc.framed(b""), 5),
    "unknown compression": (b"\1" + grpc.framed(b"x" * 20)[1:], 3),
}


@pytest.mark.parametrize(("body", "code"), BAD.values(), ids=BAD)
@async_test
async def test_a_bad_request_is_refused(body: bytes, code: int) -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.begin()
        client.send(seen, body, end=True)
        assert (await done(seen)).code == code
        assert (await client.answer()).code == 0
        assert rig.forwarder.in_flight == rig.forwarder.retained == 0


@async_test
async def test_a_second_message_that_comes_later_is_refused_too() -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.begin()
        client.send(seen, grpc.framed(infer()))
        await eventually(lambda: worker.requests)
        client.send(seen, grpc.framed(infer()), end=True)
        assert (await done(seen)).code == grpc.UNIMPLEMENTED
        assert rig.forwarder.in_flight == rig.links["a"].in_flight == 0
        assert (await client.answer()).code == 0


@pytest.mark.parametrize("path", [None, STREAM_INFER, b"/inference.GRPCInferenceService/ServerLive"])
@async_test
async def test_what_came_through_a_gateway_is_refused(path: bytes | None) -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client()
        hop = ((b"reactant-hop", b"1"),)
        seen = await (client.answer(extra=hop) if path is None else client.answer(path=path, extra=hop))
        assert seen.code == grpc.FAILED_PRECONDITION
        assert worker.requests == rig.local.requests == []
        assert [f.kind for f in client.frames if f.stream == seen.id] in ([HEADERS], [HEADERS, RST_STREAM])
