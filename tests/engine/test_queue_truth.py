"""What waits, what was given up and what is counted, when much of it happens at once (cases Q1, Q4)."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from tests.engine.settings import EDF_QUEUE_DEPTH, FULL
from tests.engine.traffic import staged
from tests.support.busy import busy_device, still_running, unique
from tests.support.client import Client, Pending, replies
from tests.support.forwarder import Forwarder
from tests.support.hooklog import HookLog
from tests.support.messages import Parameter, echo, floats, infer, slow, tensor
from tests.support.metrics import Page
from tests.support.process import HOST
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

EACH = 12
STORM = 6_000 if FULL else 600
CONNECTIONS = 3
PAST_THE_GATE = 2
"""Metas that run at a time."""
REFUSED_SECONDS = 0.1 if FULL else 1.5

OK, CANCELLED = grpc.StatusCode.OK, grpc.StatusCode.CANCELLED
DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED


def test_q1_what_nobody_waits_for_never_runs(either: Target, hooks_noted: HookLog, steps_of: int) -> None:
    """The first of them stands next to the device already, behind the execution that keeps it busy."""
    before = either.page()
    with (
        busy_device(either, hooks_noted, 2 * steps_of) as running,
        Forwarder(HOST, either.process.port) as forwarder,
        Client(forwarder.address) as other,
    ):
        send = either.client.start_infer
        lost = [other.start_infer(slow(1, id=unique("lost")), timeout=None) for _ in range(EACH)]
        left = [send(slow(1, id=unique("left"))) for _ in range(EACH)]
        kept = [send(slow(1, start=float(n))) for n in range(3)]
        eventually_sync(lambda: either.depth("slow") == 2 * EACH + len(kept), what="all are queued")
        late = [send(slow(1, parameters={"timeout": 300_000})) for _ in range(EACH)]
        later = [send(slow(1), timeout=0.3) for _ in range(EACH)]

        forwarder.cut()
        for one in left:
            one.cancel()
        eventually_sync(
            lambda: either.depth("slow") == len(kept), 1.0, what="only what is waited for is queued"
        )
        assert still_running(running), "the device was meant to be busy for longer"
        assert {reply.code for reply in replies(lost)} == {grpc.StatusCode.UNAVAILABLE}
        assert {reply.code for reply in replies(left)} == {CANCELLED}
        assert {reply.code for reply in replies([*late, *later])} == {DEADLINE_EXCEEDED}
        either.client.infer(echo(), timeout=20).ok()
    for reply in replies(kept):
        reply.ok()

    eventually_sync(lambda: either.in_flight() == 0)
    after = either.page()
    assert change(before, after, "worker_requests_served_total", model="slow") == len(running) + len(kept)
    assert by_code(before, after, "slow") == {
        "OK": len(running) + len(kept),
        "CANCELLED": 2 * EACH,
        "DEADLINE_EXCEEDED": 2 * EACH,
    }


def test_q4_the_bound_is_exact_from_several_connections(
    edf: Target, hooks_noted: HookLog, steps_of: int
) -> None:
    """Of a model without hooks, whose requests come as fast as they can."""
    arrivals = EDF_QUEUE_DEPTH + 60
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(edf.process.address)) for _ in range(CONNECTIONS)]
        for client in clients:
            client.infer(echo()).ok()
        stack.enter_context(busy_device(edf, hooks_noted, 2 * steps_of))
        arrived = [clients[n % CONNECTIONS].start_infer(echo(model="light")) for n in range(arrivals)]
        eventually_sync(lambda: sum(one.done() for one in arrived) == arrivals - EDF_QUEUE_DEPTH, 1.5)
        assert edf.depth("light") == EDF_QUEUE_DEPTH
        # One out, one in.
        waiting = [one for one in arrived if not one.done()]
        waiting[7].cancel()
        eventually_sync(lambda: edf.depth("light") == EDF_QUEUE_DEPTH - 1, 1.0)
        more = replies([edf.client.start_infer(echo(model="light"), timeout=0.4) for _ in range(2)])
        assert {reply.code for reply in more} == {DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}

    outcomes = replies(arrived)
    refused = [reply for reply in outcomes if reply.code is grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert Counter(reply.code for reply in outcomes) == {
        OK: EDF_QUEUE_DEPTH - 1,
        CANCELLED: 1,
        grpc.StatusCode.RESOURCE_EXHAUSTED: arrivals - EDF_QUEUE_DEPTH,
    }
    for reply in refused:
        assert "'light'" in reply.details
        assert str(EDF_QUEUE_DEPTH) in reply.details
        assert reply.trailers == {"reactant-not-started": "1"}
        assert reply.seconds < REFUSED_SECONDS


def test_q4_of_a_meta(edf: Target, hooks_noted: HookLog) -> None:
    """Those that wait at the gate are queued; those past it run."""
    names = [unique("at-gate") for _ in range(PAST_THE_GATE)]
    running = [edf.client.start_infer(staged([1], name=name, seconds=1.5)) for name in names]
    eventually_sync(lambda: all(hooks_noted.has(f"begin {name}") for name in names))
    arrivals = EDF_QUEUE_DEPTH + 30
    arrived = [edf.client.start_infer(staged([1])) for _ in range(arrivals)]
    eventually_sync(lambda: sum(one.done() for one in arrived) == arrivals - EDF_QUEUE_DEPTH, 1.2)
    assert edf.depth("staged") == EDF_QUEUE_DEPTH
    assert still_running(running)

    for one in arrived:
        one.cancel()
    eventually_sync(lambda: edf.depth("staged") == 0, 1.0)
    for reply in replies(running):
        reply.ok()
    assert Counter(reply.code for reply in replies(arrived)) == {
        CANCELLED: EDF_QUEUE_DEPTH,
        grpc.StatusCode.RESOURCE_EXHAUSTED: arrivals - EDF_QUEUE_DEPTH,
    }


def test_counters_after_a_storm(with_metas: Target) -> None:
    """Deadlines, cancels and a lost connection at every stage: each request is counted once, in one way."""
    chance = random.Random(4)
    models = ("echo", "light", "slow_hook", "via_echo")
    fair = with_metas
    before, statistics_before = fair.page(), statistics(fair, models)
    with ExitStack() as stack:
        forwarder = stack.enter_context(Forwarder(HOST, fair.process.port))
        clients = [stack.enter_context(Client(fair.process.address)) for _ in range(CONNECTIONS)]
        doomed = stack.enter_context(Client(forwarder.address))
        for client in (*clients, doomed):
            client.call("ServerLive", pb.ServerLiveRequest()).ok()
        told: list[Pending] = []
        unsure: list[Pending] = []
        for number in range(STORM):
            client = clients[number % CONNECTIONS]
            kind = chance.choice(("plain", "timeout", "deadline", "cancel", "bad", "lost"))
            if kind == "lost" and number > STORM // 2:
                kind = "plain"
            parameters = {"timeout": chance.randrange(1, 20_000)} if kind == "timeout" else {}
            request = a_request(chance.choice(models), kind == "bad", parameters)
            if kind == "deadline":
                unsure.append(client.start_infer(request, timeout=chance.uniform(0.001, 0.02)))
            elif kind == "cancel":
                unsure.append(one := client.start_infer(request, timeout=None))
                threading.Timer(chance.uniform(0, 0.02), one.cancel).start()
            elif kind == "lost":
                unsure.append(doomed.start_infer(request, timeout=None))
            else:
                told.append(client.start_infer(request, timeout=None))
            if number == STORM // 2:
                forwarder.cut()
            if number % 20 == 0:
                time.sleep(0.005)
        seen, guessed = replies(told), replies(unsure)
    fair.assert_quiet()
    after, statistics_after = fair.page(), statistics(fair, models)

    counted = Counter[str]()
    for model in models:
        counted.update(by_code(before, after, model))
    answered = Counter(reply.code.name for reply in seen)
    assert answered.keys() <= {"OK", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED"}
    # A call that its client gives up early may never reach the server; all others do, once.
    assert len(seen) <= counted.total() <= len(seen) + len(guessed)
    assert counted["INVALID_ARGUMENT"] == answered["INVALID_ARGUMENT"]
    for code in ("OK", "DEADLINE_EXCEEDED"):
        assert answered[code] <= counted[code] <= answered[code] + len(guessed)
    assert counted.keys() <= {"OK", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "CANCELLED"}
    for model in models:
        codes = by_code(before, after, model)
        old, new = statistics_before[model], statistics_after[model]
        assert new.success.count - old.success.count == codes.get("OK", 0)
        assert new.fail.count - old.fail.count == sum(codes.values()) - codes.get("OK", 0)
    executed = change(before, after, "worker_requests_served_total")
    assert counted["OK"] <= executed <= counted.total() - counted["INVALID_ARGUMENT"]


def a_request(model: str, bad: bool, parameters: Mapping[str, Parameter]) -> pb.ModelInferRequest:
    if model == "slow_hook":
        parameters = {"seconds": 0.002, **parameters}
    return infer(model, tensor("X", floats(1, 5 if bad else 4)), parameters=parameters)


def change(before: Page, after: Page, name: str, **labels: str) -> float:
    return after.value(name, **labels) - before.value(name, **labels)


def by_code(before: Page, after: Page, model: str) -> dict[str, float]:
    """How `worker_requests_total` of a model has moved, by status."""
    old, new = before.by_code(model), after.by_code(model)
    return {code: moved for code in new if (moved := new[code] - old.get(code, 0))}


def statistics(target: Target, models: tuple[str, ...]) -> dict[str, Any]:
    answer = target.client.call("ModelStatistics", pb.ModelStatisticsRequest()).ok()
    return {one.name: one.inference_stats for one in answer.model_stats if one.name in models}
