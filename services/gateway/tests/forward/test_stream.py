"""ModelStreamInfer: messages in, answers out in order, and how it ends."""

from __future__ import annotations

import asyncio

import pytest
from services.gateway.tests.support.client import STREAM_INFER, Client, done, infer
from services.gateway.tests.support.peer import Peer, Seen
from services.gateway.tests.support.rig import gateway
from services.gateway.tests.support.worker import Worker, refuse, reply

from reactant_core.kserve.stream import MAX_OUTSTANDING
from reactant_core.testing import async_test, eventually
from reactant_gateway.h2 import grpc
from reactant_proto import inference_pb2 as pb

MIB = 1 << 20


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


def response(peer: Peer, seen: Seen, size: int = 0) -> None:
    """A ModelInferResponse with the request's id."""
    request = pb.ModelInferRequest.FromString(seen.message)
    answer = pb.ModelInferResponse(model_name=request.model_name, id=request.id)
    if size:
        answer.raw_output_contents.append(bytes(size))
    reply(peer, seen, answer.SerializeToString())


def answers(seen: Seen) -> list[pb.ModelStreamInferResponse]:
    """The messages of the stream so far."""
    out, data = [], bytes(seen.body)
    while len(data) >= 5 and len(data) >= 5 + int.from_bytes(data[1:5], "big"):
        size = 5 + int.from_bytes(data[1:5], "big")
        out.append(pb.ModelStreamInferResponse.FromString(data[5:size]))
        data = data[size:]
    return out


def ids(seen: Seen) -> list[str]:
    return [answer.infer_response.id for answer in answers(seen)]


def send(client: Client, seen: Seen, *names: str, end: bool = False, model: str = "m", size: int = 0) -> None:
    messages = (grpc.framed(infer(model, size, name)) for name in names)
    client.send(seen, b"".join(messages), end=end)


@async_test
async def test_answers_come_in_the_order_of_the_messages() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        size = sum(len(grpc.framed(infer("m", 0, name))) for name in "123")
        head = ((b"content-length", b"%d" % size), (b"grpc-accept-encoding", b"gzip"))
        seen = client.begin(STREAM_INFER, head)
        send(client, seen, "1", "2", "3", end=True)
        await eventually(lambda: sum(r.ended for r in worker.requests) == 3)
        for request in worker.requests:
            assert request.header(b":path") == b"/inference.GRPCInferenceService/ModelInfer"
            assert request.header(b"reactant-stream") == b"1"
            assert request.header(b"grpc-accept-encoding") is request.header(b"content-length") is None
        for request in reversed(worker.requests):
            response(worker.peer, request)
        await done(seen)
        assert (seen.code, ids(seen)) == (0, ["1", "2", "3"])
        assert rig.forwarder.in_flight == 0
        assert not rig.forwarder.streams


@async_test
async def test_the_client_need_not_end_to_get_answers_and_half_close_ends_it() -> None:
    async with gateway(Worker(on_end=response)) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        for n in range(3):
            send(client, seen, str(n))
            await eventually(lambda n=n: len(answers(seen)) == n + 1)  # type: ignore[misc]
        assert not seen.ended
        client.send(seen, b"", end=True)
        assert (await done(seen)).code == 0


@async_test
async def test_a_stream_of_nothing_ends_well() -> None:
    async with gateway(Worker()) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        client.send(seen, b"", end=True)
        assert ((await done(seen)).code, bytes(seen.body)) == (0, b"")


def goes_wrong(peer: Peer, seen: Seen) -> None:
    if pb.ModelInferRequest.FromString(seen.message).id == "bad":
        refuse(peer, seen, grpc.INVALID_ARGUMENT, ())
    else:
        response(peer, seen)


BAD = {
    "unknown model": infer("unknown", request_id="bad"),
    "of a worker": infer("m", request_id="bad"),
    "junk": b"\xff" * 9,
    "empty": b"",
    "large, of an unknown model": infer("unknown", 2 * MIB, "bad"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@async_test
async def test_a_bad_message_is_an_error_in_its_place_and_the_stream_goes_on(bad: bytes) -> None:
    async with gateway(Worker(on_end=goes_wrong)) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        send(client, seen, "1")
        client.send(seen, grpc.framed(bad))
        send(client, seen, "3", end=True)
        await done(seen)
        first, second, third = answers(seen)
        assert (seen.code, first.infer_response.id, third.infer_response.id) == (0, "1", "3")
        assert (first.error_message, third.error_message) == ("", "")
        assert second.error_message
        assert second.infer_response.parameters["triton_final_response"].bool_param
        assert second.infer_response.id in ("bad", "")


@async_test
async def test_32_messages_are_in_work_and_the_client_waits() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        send(client, seen, *map(str, range(500)), size=10_000, end=True)
        await eventually(lambda: sum(r.ended for r in worker.requests) == MAX_OUTSTANDING)
        await asyncio.sleep(0.02)
        assert len(worker.requests) == rig.forwarder.in_flight == MAX_OUTSTANDING
        # A window and what is in work have been read, no more.
        assert client.h2.queued_body_size() > 500 * 10_000 - 256 * 1024 - (MAX_OUTSTANDING + 1) * 10_100
        worker.on_end = response
        for request in list(worker.requests):
            response(worker.peer, request)
        await done(seen)
        assert ids(seen) == list(map(str, range(500)))


@async_test
async def test_a_client_that_does_not_read_answers_is_not_read_either() -> None:
    worker = Worker(on_end=lambda peer, seen: response(peer, seen, 100_000))
    async with gateway(worker) as rig:
        client = await rig.client(auto_ack=False)
        seen = client.begin(STREAM_INFER)
        send(client, seen, *map(str, range(120)), end=True)
        await eventually(lambda: len(worker.requests) >= MAX_OUTSTANDING)
        await asyncio.sleep(0.05)
        assert rig.listener is not None
        (server,) = rig.listener._connections
        assert len(worker.requests) <= MAX_OUTSTANDING + 10
        assert server._h2.queued_body_size() < 5 * MIB
        client.auto_ack = True
        client.acknowledge(seen, len(seen.body))
        await done(seen)
        assert ids(seen) == list(map(str, range(120)))


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 31])
@async_test
async def test_messages_may_be_split_anywhere(piece: int) -> None:
    async with gateway(Worker(on_end=response)) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        body = b"".join(grpc.framed(infer("m", 40, str(n))) for n in range(5))
        for at in range(0, len(body), piece):
            client.send(seen, body[at : at + piece], flush=False)
            client.flush()
        client.send(seen, b"", end=True)
        await done(seen)
        assert (seen.code, ids(seen)) == (0, ["0", "1", "2", "3", "4"])


@pytest.mark.parametrize("cut", [3, 5, 20, -1])
@async_test
async def test_a_truncated_message_ends_the_stream_after_the_answers(cut: int) -> None:
    worker = Worker(on_end=response)
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        send(client, seen, "1")
        client.send(seen, grpc.framed(infer("m", 100, "2"))[:cut], end=True)
        await done(seen)
        assert (seen.code, ids(seen)) == (grpc.INTERNAL, ["1"])
        assert rig.forwarder.in_flight == rig.links["a"].in_flight == 0
        assert sum(request.ended for request in worker.requests) == 1


@async_test
async def test_a_stream_may_end_inside_a_message_that_has_been_answered() -> None:
    async with gateway(Worker(on_end=response)) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        client.send(seen, grpc.framed(infer("unknown", MIB, "bad"))[:100_000])
        await eventually(lambda: ids(seen) == ["bad"])
        client.send(seen, b"", end=True)
        assert (await done(seen)).code == grpc.INTERNAL
        assert not rig.forwarder.streams


@async_test
async def test_a_message_over_the_limit_ends_the_stream_after_the_answers() -> None:
    async with gateway(Worker(on_end=response), max_request_bytes=1000) as rig:
        client = await rig.client()
        seen = client.begin(STREAM_INFER)
        send(client, seen, "1")
        send(client, seen, "2", size=2000)
        await done(seen)
        assert (seen.code, ids(seen)) == (grpc.RESOURCE_EXHAUSTED, ["1"])
