"""Deadlines and cancels, carried to the worker."""

from __future__ import annotations

import asyncio

import pytest
from services.gateway.tests.support.client import done, infer
from services.gateway.tests.support.peer import Peer, Seen
from services.gateway.tests.support.rig import gateway
from services.gateway.tests.support.worker import HEAD, Worker, refuse, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2 import grpc


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


def timeout_of(seen: Seen) -> float:
    value = seen.header(b"grpc-timeout")
    assert value is not None
    return grpc.parse_timeout(value)


@pytest.mark.parametrize("given", [b"2S", b"2000m", b"2000000u", b"1H"])
@async_test
async def test_a_worker_is_told_what_is_left(given: bytes) -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        client = await rig.client()
        assert (await client.answer(extra=((b"grpc-timeout", given),))).code == 0
        seconds, left = grpc.parse_timeout(given), timeout_of(worker.requests[0])
        assert seconds - 1 < left < seconds
        assert sum(name == b"grpc-timeout" for name, _ in worker.requests[0].headers) == 1
        await client.answer()
        assert worker.requests[1].header(b"grpc-timeout") is None


@async_test
async def test_each_attempt_is_told_what_is_left_then() -> None:
    async def later(peer: Peer, seen: Seen) -> None:
        await asyncio.sleep(0.03)
        refuse(peer, seen)

    tasks = []
    a = Worker("a", on_end=lambda peer, seen: tasks.append(asyncio.ensure_future(later(peer, seen))))
    b = Worker("b")
    async with gateway(a, b) as rig:
        client = await rig.client()
        assert (await client.answer(extra=((b"grpc-timeout", b"5S"),))).code == 0
        assert timeout_of(a.requests[0]) - timeout_of(b.requests[0]) >= 0.028


@pytest.mark.parametrize("begun", [False, True])
@async_test
async def test_at_the_deadline_the_client_is_answered_and_then_the_worker_reset(begun: bool) -> None:
    def begin(peer: Peer, seen: Seen) -> None:
        if begun:
            peer.h2.send_response(seen.id, HEAD)
            peer.h2.send_data(seen.id, grpc.framed(b"12345")[:7])

    worker = Worker(on_end=begin)
    async with gateway(worker) as rig:
        client = await rig.client()
        loop = asyncio.get_running_loop()
        started = loop.time()
        seen = client.call(extra=((b"grpc-timeout", b"50m"),))
        at_answer: list[int | None] = []
        client.on_end = lambda peer, seen: at_answer.append(worker.requests[0].reset)
        await done(seen)
        assert 0.049 <= loop.time() - started < 0.15
        assert seen.code == grpc.DEADLINE_EXCEEDED
        assert bytes(seen.body) == (grpc.framed(b"12345")[:7] if begun else b"")
        assert at_answer == [None]
        await eventually(lambda: worker.requests[0].reset == 8)
        assert rig.forwarder.in_flight == rig.links["a"].in_flight == 0
        # A client's deadline says nothing of the worker.
        assert rig.lost == []


@async_test
async def test_the_deadline_counts_while_the_request_is_still_coming() -> None:
    worker = Worker(on_end=silent)
    async with gateway(worker) as rig:
        client = await rig.client()
        nothing, half = (client.begin(extra=((b"grpc-timeout", b"30m"),)) for _ in range(2))
        client.send(half, grpc.framed(infer(size=1000))[:500])
        assert [(await done(seen)).code for seen in (nothing, half)] == [grpc.DEADLINE_EXCEEDED] * 2
        await eventually(lambda: worker.requests[0].reset == 8)
        assert rig.forwarder.retained == 0


@pytest.mark.parametrize("given", [b"", b"5", b"S", b"123456789S", b"-1S", b"1.5S", b"1s", b"\xb2S"])
@async_test
async def test_a_timeout_that_is_none_is_refused(given: bytes) -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        seen = await (await rig.client()).answer(extra=((b"grpc-timeout", given),))
        assert (seen.code, worker.requests) == (grpc.INVALID_ARGUMENT, [])


@async_test
async def test_a_timeout_of_nothing_is_over_at_once() -> None:
    async with gateway(Worker(on_end=silent)) as rig:
        seen = await (await rig.client()).answer(extra=((b"grpc-timeout", b"0m"),))
        assert seen.code == grpc.DEADLINE_EXCEEDED


@pytest.mark.parametrize("begun", [False, True])
@async_test
async def test_a_cancel_reaches_the_worker(begun: bool) -> None:
    def begin(peer: Peer, seen: Seen) -> None:
        if begun:
            peer.h2.send_response(seen.id, HEAD)
            peer.h2.send_data(seen.id, grpc.framed(bytes(100))[:50])

    worker = Worker(on_end=begin)
    async with gateway(worker) as rig:
        client = await rig.client()
        seen = client.call()
        await eventually(lambda: worker.requests and worker.requests[0].ended)
        if begun:
            await eventually(lambda: seen.body)
        client.reset(seen.id)
        await eventually(lambda: worker.requests[0].reset == 8)
        assert rig.forwarder.in_flight == rig.forwarder.retained == rig.links["a"].in_flight == 0
        worker.on_end = reply
        assert (await client.answer()).code == 0
        assert len(worker.peers) == 1


@async_test
async def test_a_request_cancelled_while_its_model_is_looked_for_is_gone() -> None:
    worker = Worker()
    async with gateway(worker) as rig:
        looked, go = asyncio.Event(), asyncio.Event()

        async def refresh() -> None:
            looked.set()
            await go.wait()

        rig.forwarder.refresh = refresh
        client = await rig.client()
        seen = client.call(infer("new"))
        await looked.wait()
        client.reset(seen.id)
        await eventually(lambda: rig.forwarder.in_flight == 0)
        go.set()
        assert (await client.answer()).code == 0
        assert len(worker.requests) == 1
