"""`lpt_packing` in the data plane: what its rule is told of requests, however these end."""

from __future__ import annotations

from collections import Counter

import pytest
from services.gateway.tests.support.client import done, infer
from services.gateway.tests.support.peer import Peer, Seen
from services.gateway.tests.support.rig import Rig, gateway
from services.gateway.tests.support.worker import Worker, refuse, reply

from reactant_core.testing import async_test, eventually
from reactant_gateway.h2 import grpc
from reactant_policy.routing.packed import Fill, Packed
from reactant_policy.routing.spread import RoundRobin
from reactant_policy.routing.table import ModelView

BATCHED = ModelView("m", "READY", idempotent=True, batch_input="x", batch_axis=1, max_batch_size=8)


def silent(peer: Peer, seen: Seen) -> None:
    """No answer."""


def died(peer: Peer, seen: Seen) -> None:
    peer.abort()


def not_started(peer: Peer, seen: Seen) -> None:
    refuse(peer, seen, grpc.UNAVAILABLE)


def fill(rig: Rig, *homes: str, fill: Fill | None = None, basis: str = "requests") -> Packed:
    """Puts the rule in force, with "m" placed on `homes`."""
    packed = Packed(fill)
    packed.assign({"m": homes} if homes else {})
    rig.router.follow(packed, basis)
    return packed


def in_flight(packed: Packed, model: str = "m") -> dict[str, int]:
    return {worker: packed.in_flight(model, worker) for worker in "abc" if packed.in_flight(model, worker)}


@async_test
async def test_requests_fill_a_batch_on_one_replica_and_then_on_the_next() -> None:
    workers = [Worker(name, on_end=silent) for name in "abc"]
    async with gateway(*workers, models=(BATCHED,)) as rig:
        packed = fill(rig, "a", "c")
        client = await rig.client()
        # Rows of 3 + 4 + 1, then 5 + 3.
        for count, rows in enumerate((3, 4, 1, 5, 3), 1):
            client.call(infer(size=rows))
            await eventually(lambda count=count: sum(len(w.requests) for w in workers) == count)  # type: ignore[misc]
        assert sorted(len(worker.requests) for worker in workers) == [0, 2, 3]
        assert in_flight(packed) == {"a": 8, "c": 8}
        assert rig.router.arrivals == {"m": 16}


@pytest.mark.parametrize("act", [not_started, died])
@async_test
async def test_a_request_that_fails_over_is_counted_where_it_is_and_arrived_once(act: object) -> None:
    a, b = Worker("a", on_end=act), Worker("b", on_end=silent)  # type: ignore[arg-type]
    async with gateway(a, b, models=(BATCHED,)) as rig:
        packed = fill(rig, "a")
        client = await rig.client()
        first, second = client.call(infer(size=3)), client.call(infer(size=2))
        await eventually(lambda: len(b.requests) == 2)
        assert len(a.requests) >= 1
        assert in_flight(packed) == {"b": 5}
        assert rig.router.arrivals == {"m": 5}
        for request in b.requests:
            reply(b.peer, request)
        assert [(await done(seen)).code for seen in (first, second)] == [0, 0]
        await eventually(lambda: in_flight(packed) == {})


@async_test
async def test_given_up_requests_leave_nothing_behind() -> None:
    a = Worker(on_end=silent)
    async with gateway(a, models=(BATCHED,)) as rig:
        packed = fill(rig, "a", "b")
        client, hasty = await rig.client(), await rig.client()
        client.call(infer(size=2))
        late = client.call(infer(size=3), extra=((b"grpc-timeout", b"50m"),))
        hasty.call(infer(size=5))
        await eventually(lambda: rig.router.arrivals.get("m") == 10)
        hasty.abort()
        assert (await done(late)).code == grpc.DEADLINE_EXCEEDED
        await eventually(lambda: in_flight(packed) == {"a": 2})


@async_test
async def test_a_full_replica_sends_requests_to_one_that_is_not_placed() -> None:
    a, b = Worker("a", on_end=silent), Worker("b", on_end=silent)
    async with gateway(a, b, models=(BATCHED,), max_in_flight=4) as rig:
        packed = fill(rig, "a")
        client = await rig.client()
        for _ in range(6):
            client.call(infer(size=1))
        await eventually(lambda: len(a.requests) + len(b.requests) == 6)
        assert in_flight(packed) == {"a": 4, "b": 2}


@async_test
async def test_a_replica_that_leaves_in_its_run_is_counted_out_and_another_takes_over() -> None:
    workers = {name: Worker(name, on_end=silent) for name in "abc"}
    async with gateway(*workers.values(), models=(BATCHED,)) as rig:
        packed = fill(rig, "a", "b")
        client = await rig.client()
        calls = [client.call(infer(size=1)) for _ in range(3)]
        await eventually(lambda: sum(in_flight(packed).values()) == 3)
        (gone,) = in_flight(packed)
        (stays,) = {"a", "b"} - {gone}
        rig.serve(BATCHED, workers=(stays, "c"))
        workers[gone].peer.abort()
        await eventually(lambda: len(workers[stays].requests) == 3)
        assert in_flight(packed) == {stays: 3}
        for request in workers[stays].requests:
            reply(workers[stays].peer, request)
        assert [(await done(seen)).code for seen in calls] == [0] * 3
        await eventually(lambda: in_flight(packed) == {})
        assert rig.router.arrivals == {"m": 3}


@async_test
async def test_a_new_model_counts_its_rows_and_an_unknown_one_nothing() -> None:
    a = Worker(on_end=silent)
    async with gateway(a, models=()) as rig:
        packed = fill(rig)
        client = await rig.client()
        assert (await client.answer(infer("unknown", size=4))).code == grpc.NOT_FOUND
        rig.appear = [BATCHED]
        client.call(infer(size=6))
        await eventually(lambda: a.requests)
        assert in_flight(packed) == {"a": 6}
        assert rig.router.arrivals == {"m": 6}


@async_test
async def test_the_rule_changes_while_requests_are_in_flight() -> None:
    a, b = Worker("a", on_end=silent), Worker("b", on_end=silent)
    async with gateway(a, b, models=(BATCHED,)) as rig:
        client = await rig.client()
        calls = []

        async def call(rows: int) -> None:
            calls.append(client.call(infer(size=rows)))
            await eventually(lambda: len(a.requests) + len(b.requests) == len(calls))

        await call(7)
        first = fill(rig, "a")
        await call(1)
        rig.router.follow(RoundRobin(), "compute")
        await call(6)
        second = fill(rig, "b")
        await call(2)
        # What round robin sent was never told to either.
        assert in_flight(second) == {"a": 1, "b": 2}
        assert rig.router.arrivals == {"m": 3}
        rig.router.follow(first, "items")
        await call(4)
        assert in_flight(first) == {"a": 5, "b": 2}
        for worker in (a, b):
            for request in worker.requests:
                reply(worker.peer, request)
        assert Counter([(await done(seen)).code for seen in calls]) == {0: 5}
        await eventually(lambda: in_flight(first) == {})
