"""Who gets a request: admission, new models, regions, work, compressed requests."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from functools import partial

import pytest
from services.gateway.tests.support.client import INFER, done, infer, until
from services.gateway.tests.support.peer import Peer, Seen
from services.gateway.tests.support.rig import gateway
from services.gateway.tests.support.worker import Worker, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2 import grpc
from reactant_policy.routing.table import ModelView
from reactant_proto import inference_pb2 as pb


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


@async_test
async def test_a_greedy_connection_leaves_a_tenth_to_others() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker, max_in_flight=100) as rig:
        greedy, modest = await rig.client(), await rig.client()
        first = modest.call()
        await eventually(lambda: worker.requests)
        calls = [greedy.call() for _ in range(150)]
        await eventually(lambda: sum(seen.ended for seen in calls) == 61)
        refused = [seen for seen in calls if seen.ended]
        assert {seen.code for seen in refused} == {grpc.RESOURCE_EXHAUSTED}
        assert {seen.header(b"reactant-not-started") for seen in refused} == {b"1"}
        assert rig.forwarder.in_flight == 90
        more = [modest.call() for _ in range(20)]
        await eventually(lambda: sum(seen.ended for seen in more) == 10)
        assert rig.forwarder.in_flight == rig.links["a"].in_flight == 100
        for request in worker.requests:
            reply(worker.peer, request)
        assert (await done(first)).code == 0
        await eventually(lambda: rig.forwarder.in_flight == 0)
        worker.on_end = reply
        assert (await greedy.answer()).code == 0


@async_test
async def test_a_full_worker_is_passed_over_and_full_ones_refuse() -> None:
    a, b = Worker("a", on_end=silent), Worker("b", on_end=silent)
    async with gateway(a, b, max_in_flight=4) as rig:
        rig.serve(ModelView("m", "READY"), workers=("a",))
        client = await rig.client()
        held = [client.call() for _ in range(4)]
        await eventually(lambda: len(a.requests) == 4)
        seen = await client.answer()
        assert (seen.code, seen.header(b"reactant-not-started")) == (grpc.RESOURCE_EXHAUSTED, b"1")
        rig.serve(ModelView("m", "READY"))
        client.call()
        client.call()
        await eventually(lambda: len(b.requests) == 2)
        assert (len(a.requests), sum(seen.ended for seen in held)) == (4, 0)


@async_test
async def test_the_workers_streams_are_counted_and_further_connections_opened() -> None:
    worker = Worker(on_end=silent, max_streams=2)
    async with gateway(worker) as rig:
        client = await rig.client()
        accepted: list[Seen] = []
        while len(accepted) < 8:
            seen = client.call()
            await until(partial(lambda seen: seen.ended or rig.forwarder.in_flight > len(accepted), seen))
            if not seen.ended:
                accepted.append(seen)
        await eventually(lambda: len(worker.requests) == 8)
        assert [len(peer.streams) for peer in worker.peers] == [2, 2, 2, 2]
        for _ in range(3):
            refused = await client.answer()
            assert refused.code == grpc.RESOURCE_EXHAUSTED
        assert len(worker.peers) == 4
        assert sum(len(peer.streams) for peer in worker.peers) == 8


@async_test
async def test_a_model_that_is_new_is_looked_for_before_it_is_denied() -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = await client.answer(infer("new"))
        assert (seen.code, rig.refreshes) == (grpc.NOT_FOUND, 1)
        assert b"new" in (seen.header(b"grpc-message") or b"")
        assert seen.header(b"reactant-not-started") == b"1"
        rig.appear = [ModelView("new", "READY")]
        # The body goes on coming while the workers are asked.
        assert (await client.answer(infer("new", 2_000_000))).code == 0
        assert len(worker.requests[0].body) > 2_000_000


@async_test
async def test_a_model_that_nobody_can_take_is_unavailable() -> None:
    async with gateway(Worker(), models=(ModelView("m", "LOADING"),)) as rig:
        seen = await (await rig.client()).answer()
        assert (seen.code, seen.header(b"reactant-not-started")) == (grpc.UNAVAILABLE, b"1")


@pytest.mark.parametrize("where", ["input", "output", "input alone"])
@async_test
async def test_a_region_decides_the_worker(where: str) -> None:
    request = pb.ModelInferRequest(model_name="m")
    tensor = request.outputs.add(name="y") if where == "output" else request.inputs.add(name="x")
    tensor.parameters["shared_memory_region"].string_param = "r"
    if where != "input alone":
        request.raw_input_contents.append(b"1234")
    body = grpc.framed(request.SerializeToString())
    a, b = Worker("a"), Worker("b")
    async with gateway(a, b) as rig:
        client = await rig.client()
        rig.holders = {"r": frozenset({"b"})}
        for cut in range(6, len(body)):
            seen = client.begin()
            client.send(seen, body[:cut])
            client.h2.ping(b"12345678")
            client.flush()
            await eventually(lambda cut=cut: client.pongs == cut - 5)  # type: ignore[misc]
            client.send(seen, body[cut:], end=True)
            assert (await done(seen)).code == 0
        assert (len(a.requests), len(b.requests)) == (0, len(body) - 6)


@async_test
async def test_work_is_counted_in_rows_of_the_batch_input() -> None:
    view = ModelView("m", "READY", batch_input="x", batch_axis=1, max_batch_size=64)
    a, b = Worker("a", on_end=silent), Worker("b", on_end=silent)
    async with gateway(a, b, models=(view,), basis="items") as rig:
        client = await rig.client()
        client.call(infer(size=7))
        await eventually(lambda: a.requests)
        client.call(infer(size=30))
        await eventually(lambda: b.requests)
        assert rig.router.load == {"a": 7, "b": 30}


COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("size", [10, 3_000_000])
@pytest.mark.parametrize("piece", [7, 10_000_000])
@async_test
async def test_a_compressed_request_is_looked_into_and_passed_on_as_it_came(
    encoding: str, size: int, piece: int
) -> None:
    view = ModelView("m", "READY", batch_input="x", batch_axis=1, max_batch_size=1 << 30)
    worker = Worker(on_end=silent)
    async with gateway(worker, models=(view,), basis="items") as rig:
        client = await rig.client()
        packed = COMPRESS[encoding](infer(size=size))
        body = b"\1" + len(packed).to_bytes(4, "big") + packed
        seen = client.begin(INFER, ((b"grpc-encoding", encoding.encode()),))
        for at in range(0, len(body), piece):
            client.send(seen, body[at : at + piece], end=at + piece >= len(body))
        await eventually(lambda: worker.requests and worker.requests[0].ended)
        assert bytes(worker.requests[0].body) == body
        assert worker.requests[0].header(b"grpc-encoding") == encoding.encode()
        assert rig.router.load == {"a": size}
        reply(worker.peer, worker.requests[0])
        assert (await done(seen)).code == 0
