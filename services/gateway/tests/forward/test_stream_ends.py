"""A ModelStreamInfer that ends early: deadline, cancel, drain, a worker that dies."""

from __future__ import annotations

import asyncio

import pytest
from services.gateway.tests.support.client import STREAM_INFER, Client, done, infer
from services.gateway.tests.support.peer import Peer, Seen
from services.gateway.tests.support.rig import gateway
from services.gateway.tests.support.worker import Worker, refuse, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2 import connection as connection_module
from reactant_gateway.h2 import grpc
from reactant_policy.routing.table import ModelView
from reactant_proto import inference_pb2 as pb

MIB = 1 << 20


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


def response(peer: Peer, seen: Seen) -> None:
    request = pb.ModelInferRequest.FromString(seen.message)
    reply(peer, seen, pb.ModelInferResponse(id=request.id).SerializeToString())


def only_answer(seen: Seen) -> pb.ModelStreamInferResponse:
    assert len(seen.body) == 5 + int.from_bytes(seen.body[1:5], "big")
    return pb.ModelStreamInferResponse.FromString(seen.message)


def send(client: Client, seen: Seen, name: str, size: int = 0, *, end: bool = False) -> None:
    client.send(seen, grpc.framed(infer("m", size, name)), end=end)


@async_test
async def test_drain_lets_what_was_read_finish_and_then_ends() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        send(client, seen, "1")
        await eventually(lambda: worker.requests and worker.requests[0].ended)
        client.send(seen, grpc.framed(infer("m", 100, "half"))[:50])
        await eventually(lambda: len(worker.requests) == 2)
        assert rig.listener is not None
        rig.listener.drain()
        send(client, seen, "late")
        await asyncio.sleep(0.02)
        assert not seen.ended
        response(worker.peer, worker.requests[0])
        await done(seen)
        assert (seen.code, only_answer(seen).infer_response.id) == (grpc.UNAVAILABLE, "1")
        assert not worker.requests[1].ended
        await client.closed.wait()
        assert not rig.forwarder.streams


@async_test
async def test_drain_ends_an_idle_stream_at_once() -> None:
    async with gateway(Worker()) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        await eventually(lambda: rig.forwarder.streams)
        assert rig.listener is not None
        rig.listener.drain()
        assert (await done(seen)).code == grpc.UNAVAILABLE


@async_test
async def test_the_deadline_ends_the_stream_and_what_is_in_work() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER, ((b"grpc-timeout", b"60m"),))
        send(client, seen, "1")
        await done(seen)
        assert seen.code == grpc.DEADLINE_EXCEEDED
        left = worker.requests[0].header(b"grpc-timeout")
        assert left is not None
        assert 0 < grpc.parse_timeout(left) <= 0.06
        await eventually(lambda: worker.requests[0].reset == 8)
        assert rig.forwarder.in_flight == rig.links["a"].in_flight == 0


@pytest.mark.parametrize("how", ["reset", "gone"])
@async_test
async def test_a_cancel_reaches_the_worker(how: str) -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        send(client, seen, "1")
        send(client, seen, "2")
        await eventually(lambda: sum(request.ended for request in worker.requests) == 2)
        if how == "reset":
            client.reset(seen.id)
        else:
            client.abort()
        await eventually(lambda: all(request.reset == 8 for request in worker.requests))
        assert rig.forwarder.in_flight == rig.links["a"].in_flight == 0
        assert not rig.forwarder.streams


@async_test
async def test_each_message_has_a_failover_of_its_own() -> None:
    a = Worker("a", on_end=lambda peer, seen: refuse(peer, seen, head=True))
    b = Worker("b", on_end=response)
    async with gateway(a, b) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        send(client, seen, "1", end=True)
        await done(seen)
        assert (seen.code, only_answer(seen).error_message) == (0, "")
        assert len(a.requests) == len(b.requests) == 1


@pytest.mark.parametrize("idempotent", [True, False])
@async_test
async def test_a_worker_that_dies_is_an_error_in_place_or_none_at_all(idempotent: bool) -> None:
    a, b = Worker("a", on_end=lambda peer, seen: peer.abort()), Worker("b", on_end=response)
    async with gateway(a, b, models=(ModelView("m", "READY", idempotent=idempotent),)) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        send(client, seen, "1", end=True)
        await done(seen)
        answer = only_answer(seen)
        assert (seen.code, bool(answer.error_message)) == (0, not idempotent)
        assert answer.infer_response.id == "1"
        assert ("worker a" in answer.error_message) == (not idempotent)


@async_test
async def test_messages_count_against_the_cap_one_by_one() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker, max_in_flight=2) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        for name in "123":
            send(client, seen, name)
        client.send(seen, b"", end=True)
        await eventually(lambda: len(worker.requests) == 2)
        assert rig.forwarder.in_flight == client_in_flight(rig.listener) == 2
        for request in worker.requests:
            response(worker.peer, request)
        await done(seen)
        bodies = bytes(seen.body)
        assert seen.code == 0
        assert bodies.count(b"full number of requests") == 1
        assert rig.forwarder.in_flight == 0


def client_in_flight(listener: object) -> int:
    (connection,) = listener._connections  # type: ignore[attr-defined]
    return int(connection.in_flight)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["client", "deadline"])
@async_test
async def test_windows_are_whole_after_streams_cut_short(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(connection_module, "CONNECTION_WINDOW_BYTES", MIB)
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        extra = ((b"grpc-timeout", b"20m"),) if by == "deadline" else ()
        for n in range(1, 40):
            # 32 are in work; what follows waits in the gateway.
            seen = client.begin(STREAM_INFER, extra)
            for name in range(40):
                send(client, seen, str(name), 5_000)
            if by == "deadline":
                await done(seen)
            else:
                await eventually(lambda n=n: len(worker.requests) >= 32 * n)  # type: ignore[misc]
                client.reset(seen.id)
            await eventually(lambda: rig.forwarder.in_flight == 0)
        worker.on_end = reply
        assert (await client.answer(infer(size=4 * MIB))).code == 0
