"""Calls that are offered before they go to a servicer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, final

import grpc
import pytest

from reactant_core.errors import ModelUnavailable, ResourceExhausted
from reactant_core.rpc import RpcServer
from reactant_core.rpc.direct import DirectCall
from reactant_core.testing import async_test, eventually

Serving = Callable[..., Any]


@final
class Taker:
    """Takes calls whose message begins with `mine`, and keeps them until somebody answers."""

    def __init__(self) -> None:
        self.open: list[DirectCall] = []
        self.left: list[bytes] = []
        self.broken = False

    def __call__(self, calls: Sequence[DirectCall]) -> None:
        for call in calls:
            if self.broken:
                raise RuntimeError("no hands")
            if call.payload.startswith(b"mine"):
                call.take(lambda call=call: self.left.append(call.payload))  # type: ignore[misc]
                self.open.append(call)

    def offer_to(self, server: RpcServer) -> None:
        server.offer("/test.Echo/Say", self)


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@async_test
async def test_what_is_taken_is_answered_and_the_rest_goes_to_the_servicer(serving: Serving) -> None:
    taker = Taker()
    async with serving("native", add=taker.offer_to) as served:
        say, peer = served.unary("Say"), served.unary("Peer")
        first = say(b"mine 1", metadata=(("who", "me"),), timeout=5)
        second = say(b"mine 2")
        assert await say(b"yours") == b"yours"
        assert await peer(b"mine")  # of another method
        await eventually(lambda: len(taker.open) == 2)
        one, two = sorted(taker.open, key=lambda call: call.payload)
        assert ("who", "me") in one.metadata
        assert one.seconds_remaining is not None
        assert 0 < one.seconds_remaining <= 5
        assert two.seconds_remaining is None
        one.respond(b"answer")
        two.fail(ModelUnavailable("not thére", not_started=True))
        assert await first == b"answer"
        error = await failure(second)
        assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "not thére")
        assert ("reactant-not-started", "1") in tuple(error.trailing_metadata())
        assert taker.left == []


@async_test
async def test_nobody_waits_any_more(serving: Serving) -> None:
    taker = Taker()
    async with serving("native", add=taker.offer_to) as served:
        say = served.unary("Say")
        cancelled, late, kept = say(b"mine, cancelled"), say(b"mine, late", timeout=0.2), say(b"mine, kept")
        await eventually(lambda: len(taker.open) == 3)
        cancelled.cancel()
        assert (await failure(late)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: sorted(taker.left) == [b"mine, cancelled", b"mine, late"])
        for call in taker.open:
            if call.payload == b"mine, kept":
                call.respond(b"here")
        assert await kept == b"here"


@async_test
async def test_a_taker_that_fails_leaves_calls_to_the_servicer(serving: Serving) -> None:
    taker = Taker()
    taker.broken = True
    async with serving("native", add=taker.offer_to) as served:
        assert await served.unary("Say")(b"mine") == b"mine"


@async_test
async def test_too_large_a_message_is_not_offered(serving: Serving) -> None:
    taker = Taker()
    async with serving("native", add=taker.offer_to, max_recv_msg_bytes=1000) as served:
        error = await failure(served.unary("Say")(b"mine" * 1000))
        assert error.code() is ResourceExhausted.code
        assert not taker.open


@async_test
async def test_a_stop_waits_for_what_was_taken(serving: Serving) -> None:
    taker = Taker()
    async with serving("native", add=taker.offer_to) as served:
        answered = served.unary("Say")(b"mine")
        await eventually(lambda: bool(taker.open))
        stopping = asyncio.ensure_future(served.server.stop(10))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(stopping), 0.05)
        taker.open[0].respond(b"in time")
        assert await answered == b"in time"
        await asyncio.wait_for(stopping, 10)
        assert taker.left == []


@async_test
async def test_a_stop_ends_what_is_open_when_its_grace_has_passed(serving: Serving) -> None:
    taker = Taker()
    async with serving("native", add=taker.offer_to) as served:
        answered = served.unary("Say")(b"mine")
        await eventually(lambda: bool(taker.open))
        await served.server.stop(0.05)
        assert taker.left == [b"mine"]
        await failure(answered)


@async_test
async def test_grpcio_offers_nothing(serving: Serving) -> None:
    taker = Taker()
    async with serving("grpcio", add=taker.offer_to) as served:
        assert await served.unary("Say")(b"mine") == b"mine"
        assert not taker.open
