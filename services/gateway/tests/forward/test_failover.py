"""Another worker gets the request when the first cannot have run it, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from services.gateway.tests.support.client import done, infer
from services.gateway.tests.support.peer import GOAWAY, Peer, Seen, frame
from services.gateway.tests.support.rig import Rig, gateway
from services.gateway.tests.support.worker import HEAD, Worker, refuse, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.forward import exchange
from reactant_gateway.h2 import grpc
from reactant_policy.routing.table import ModelView

ONCE = (ModelView("m", "READY", idempotent=False),)
IDEMPOTENT = (ModelView("m", "READY", idempotent=True),)
MIB = 1 << 20

Act = Callable[[Peer, Seen], None]


def from_b(peer: Peer, seen: Seen) -> None:
    reply(peer, seen, b"from b")


def refused_stream(peer: Peer, seen: Seen) -> None:
    peer.reset(seen.id, 7)


def goaway_below(peer: Peer, seen: Seen) -> None:
    peer.raw(frame(GOAWAY, 0, 0, bytes(8)))


def not_started(code: int, *, head: bool = False) -> Act:
    return lambda peer, seen: refuse(peer, seen, code, head=head)


def died(peer: Peer, seen: Seen) -> None:
    peer.abort()


def reset(peer: Peer, seen: Seen) -> None:
    peer.reset(seen.id, 2)


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


NEVER_STARTED = {
    "refused stream": refused_stream,
    "goaway": goaway_below,
    "unavailable": not_started(grpc.UNAVAILABLE),
    "not found": not_started(grpc.NOT_FOUND),
    "unavailable after a head": not_started(grpc.UNAVAILABLE, head=True),
    "not found after a head": not_started(grpc.NOT_FOUND, head=True),
}
PERHAPS_STARTED = {"died": died, "reset": reset}


def pair(act: Act, **options: object) -> tuple[Worker, Worker]:
    """The first of round robin does `act`, the second answers."""
    return Worker("a", on_end=act, **options), Worker("b", on_end=from_b)  # type: ignore[arg-type]


def nothing_left(rig: Rig) -> None:
    assert rig.forwarder.in_flight == rig.forwarder.retained == 0
    assert all(link.in_flight == 0 for link in rig.links.values())
    assert not any(rig.router.load.values())


@pytest.mark.parametrize("act", NEVER_STARTED.values(), ids=NEVER_STARTED)
@async_test
async def test_what_was_not_started_goes_to_another_worker(act: Act) -> None:
    a, b = pair(act)
    async with gateway(a, b, models=ONCE) as rig:
        seen = await (await rig.client()).answer()
        assert (seen.code, seen.message) == (0, b"from b")
        assert (len(a.requests), len(b.requests)) == (1, 1)
        assert bytes(a.requests[0].body) == bytes(b.requests[0].body)
        nothing_left(rig)
        # Nothing of it says that the worker is gone.
        assert rig.lost == []


@pytest.mark.parametrize("act", NEVER_STARTED.values(), ids=NEVER_STARTED)
@async_test
async def test_what_nobody_started_ends_as_the_last_worker_says(act: Act) -> None:
    a, b = Worker("a", on_end=act), Worker("b", on_end=act)
    async with gateway(a, b, models=ONCE) as rig:
        seen = await (await rig.client()).answer()
        assert seen.code in (grpc.UNAVAILABLE, grpc.NOT_FOUND)
        assert seen.header(b"reactant-not-started") == b"1"
        assert (len(a.requests), len(b.requests)) == (1, 1)
        nothing_left(rig)


@pytest.mark.parametrize("act", NEVER_STARTED.values(), ids=NEVER_STARTED)
@async_test
async def test_with_the_others_out_of_reach_the_refusal_is_passed_on(act: Act) -> None:
    a, b = pair(act)
    async with gateway(a, b, models=ONCE) as rig:
        await rig.links["b"].close()
        seen = await (await rig.client()).answer()
        assert seen.code in (grpc.UNAVAILABLE, grpc.NOT_FOUND)
        assert seen.header(b":status") == b"200"
        assert seen.header(b"reactant-not-started") == b"1"
        nothing_left(rig)


@pytest.mark.parametrize("act", PERHAPS_STARTED.values(), ids=PERHAPS_STARTED)
@pytest.mark.parametrize("idempotent", [True, False])
@async_test
async def test_what_may_have_run_is_repeated_only_where_that_does_no_harm(act: Act, idempotent: bool) -> None:
    a, b = pair(act)
    async with gateway(a, b, models=IDEMPOTENT if idempotent else ONCE) as rig:
        seen = await (await rig.client()).answer()
        if idempotent:
            assert (seen.code, seen.message) == (0, b"from b")
        else:
            assert seen.code == (grpc.UNAVAILABLE if act is died else grpc.INTERNAL)
            assert seen.header(b"reactant-not-started") is None
            assert b.requests == []
        nothing_left(rig)


@async_test
async def test_nothing_is_repeated_after_the_first_byte_of_an_answer() -> None:
    def half(peer: Peer, seen: Seen) -> None:
        peer.h2.send_response(seen.id, HEAD)
        peer.h2.send_data(seen.id, grpc.framed(bytes(1000))[:10])
        peer.flush()

    a, b = pair(half)
    async with gateway(a, b, models=IDEMPOTENT) as rig:
        client = await rig.client()
        seen = client.call()
        await eventually(lambda: seen.body)
        a.peer.abort()
        await done(seen)
        assert (seen.code, b.requests) == (grpc.UNAVAILABLE, [])
        nothing_left(rig)


@pytest.mark.parametrize("code", [grpc.RESOURCE_EXHAUSTED, grpc.INTERNAL, grpc.INVALID_ARGUMENT])
@async_test
async def test_other_statuses_pass_through(code: int) -> None:
    a, b = pair(not_started(code))
    async with gateway(a, b, models=IDEMPOTENT) as rig:
        seen = await (await rig.client()).answer()
        assert (seen.code, b.requests) == (code, [])


@pytest.mark.parametrize("code", [grpc.UNAVAILABLE, grpc.NOT_FOUND])
@async_test
async def test_a_status_that_does_not_say_not_started_passes_through(code: int) -> None:
    a, b = pair(lambda peer, seen: refuse(peer, seen, code, ()))
    async with gateway(a, b, models=IDEMPOTENT) as rig:
        seen = await (await rig.client()).answer()
        assert (seen.code, b.requests) == (code, [])


@async_test
async def test_a_worker_that_refuses_connections_is_passed_over() -> None:
    a, b = pair(reply)
    async with gateway(a, b, models=ONCE) as rig:
        await a.stop()
        await eventually(lambda: rig.lost)
        client = await rig.client()
        for _ in range(4):
            assert (await client.answer()).message == b"from b"
        nothing_left(rig)


@async_test
async def test_without_a_worker_the_request_was_not_started() -> None:
    async with gateway(Worker("a")) as rig:
        await rig.workers["a"].stop()
        await eventually(lambda: not rig.links["a"].connected)
        seen = await (await rig.client()).answer()
        assert (seen.code, seen.header(b"reactant-not-started")) == (grpc.UNAVAILABLE, b"1")


@pytest.mark.parametrize("unsent", ["flow control", "transport", "message"])
@async_test
async def test_what_was_not_all_sent_goes_to_another_worker(unsent: str) -> None:
    a, b = pair(silent, window=1000 if unsent == "flow control" else None, auto_ack=False)
    async with gateway(a, b, models=ONCE) as rig:
        client = await rig.client()
        if unsent == "transport":
            rig.links["a"]._connections[0].pause_writing()
        body = grpc.framed(infer(size=10_000))
        seen = client.begin()
        cut = 5_000 if unsent == "message" else len(body)
        client.send(seen, body[:cut], end=cut == len(body))
        await eventually(lambda: rig.links["a"].in_flight)
        if unsent != "transport":
            await eventually(lambda: a.requests and len(a.requests[0].body) >= 1000)
        a.peer.abort()
        await eventually(lambda: rig.links["b"].in_flight or seen.ended)
        if cut < len(body):
            client.send(seen, body[cut:], end=True)
        await done(seen)
        assert (seen.code, seen.message) == (0, b"from b")
        assert bytes(b.requests[0].body) == body
        nothing_left(rig)


@async_test
async def test_a_request_that_is_still_coming_goes_on_at_the_other_worker() -> None:
    a = Worker("a", on_headers=refused_stream)
    b = Worker("b", on_end=lambda peer, seen: reply(peer, seen, seen.message))
    async with gateway(a, b, models=ONCE) as rig:
        client = await rig.client()
        message = infer(size=300_000)
        body = grpc.framed(message)
        seen = client.begin()
        for at in range(0, len(body), 10_000):
            client.send(seen, body[at : at + 10_000], end=at + 10_000 >= len(body))
            await asyncio.sleep(0)
        await done(seen)
        assert (seen.code, seen.message) == (0, message)
        nothing_left(rig)


@pytest.mark.parametrize(("size", "kept"), [(4 * MIB - 1000, True), (4 * MIB + 1000, False)])
@async_test
async def test_4_mib_of_a_request_are_kept(size: int, kept: bool) -> None:
    a, b = pair(not_started(grpc.UNAVAILABLE))
    async with gateway(a, b, models=IDEMPOTENT) as rig:
        seen = await (await rig.client()).answer(infer(size=size))
        assert seen.code == (0 if kept else grpc.UNAVAILABLE)
        assert len(b.requests) == kept
        nothing_left(rig)


@pytest.mark.skipif(str(exchange.__file__).endswith(".so"), reason="compiled code has the limit in it")
@async_test
async def test_requests_together_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "RETRY_PROCESS_BYTES", MIB)
    worker = Worker("a", on_end=silent)
    async with gateway(worker, Worker("b", on_end=from_b), models=IDEMPOTENT) as rig:
        rig.serve(*IDEMPOTENT, workers=("a",))
        client = await rig.client()
        calls = [client.call(infer(size=300_000)) for _ in range(8)]
        await eventually(lambda: sum(seen.ended for seen in worker.requests) == 8)
        assert 600_000 < rig.forwarder.retained <= MIB
        rig.serve(*IDEMPOTENT)
        worker.peer.abort()
        codes = sorted([(await done(seen)).code or 0 for seen in calls])
        assert codes == [0] * 3 + [grpc.UNAVAILABLE] * 5
        nothing_left(rig)


@pytest.mark.parametrize("models", [ONCE, IDEMPOTENT], ids=["once", "idempotent"])
@async_test
async def test_sent_away_by_the_only_worker_a_request_goes_on_over_its_next_connection(
    models: tuple[ModelView, ...],
) -> None:
    sent_away: list[int] = []

    def once_away(peer: Peer, seen: Seen) -> None:
        if not sent_away:
            sent_away.append(seen.id)
            goaway_below(peer, seen)
        else:
            reply(peer, seen, b"second time")

    async with gateway(Worker("a", on_end=once_away), models=models) as rig:
        client = await rig.client()
        answer = await done(client.call(infer()))
        assert (answer.code, sent_away) == (0, [1])
        again = await done(client.call(infer()))
        assert again.code == 0
        nothing_left(rig)


@async_test
async def test_a_worker_that_sends_away_again_and_again_is_not_waited_for_twice() -> None:
    async with gateway(Worker("a", on_end=goaway_below), models=ONCE) as rig:
        client = await rig.client()
        answer = await done(client.call(infer()))
        assert answer.code == grpc.UNAVAILABLE
        assert answer.header(b"reactant-not-started") == b"1"
        nothing_left(rig)


@async_test
async def test_a_request_that_kills_its_worker_kills_no_more_than_two() -> None:
    workers = [Worker(name, on_end=died) for name in ("a", "b", "c")]
    async with gateway(*workers, models=IDEMPOTENT) as rig:
        client = await rig.client()
        answer = await done(client.call(infer()))
        assert answer.code == grpc.UNAVAILABLE
        assert sum(len(worker.requests) for worker in workers) == 2
        nothing_left(rig)
