"""Pipelines of models beside models that are asked directly, on one busy device."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack

import grpc
import pytest
from tests.engine.settings import METAS
from tests.engine.traffic import Closed, Traffic, staged
from tests.support.busy import unique
from tests.support.client import replies
from tests.support.hooklog import HookLog
from tests.support.messages import echo, slow
from tests.support.metrics import Page
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SECONDS = 1.0
SETTLING_SECONDS = 0.5
STAGES = 5


def change(before: Page, after: Page, name: str, model: str, **labels: str) -> float:
    return after.value(name, model=model, **labels) - before.value(name, model=model, **labels)


def test_a_started_meta_waits_for_no_queue(edf: Target, hooks_noted: HookLog, steps_of: int) -> None:
    """Even where all that is queued is more urgent: what it has begun is not to be for nothing."""

    def urgent(number: int) -> pb.ModelInferRequest:
        return echo(model="medium", parameters={"timeout": 10_000_000})

    name = unique("started")
    first = edf.client.infer(slow(steps_of // 2)).seconds
    meta = edf.client.start_infer(staged([steps_of // 2, *[1] * (STAGES - 1)], name=name))
    eventually_sync(lambda: hooks_noted.has(f"stage 0 {name}") and edf.depth("slow") == 0)
    with Closed(edf.process.address, urgent, 40) as regular:
        reply = meta.reply(10)
        eventually_sync(lambda: len(regular.outcomes) > 40)
    reply.ok()
    regular.assert_all_right()
    queue = statistics.median(one.seconds for one in regular.outcomes)
    # Each further stage waits for what is in flight, a fortieth of the queue or two.
    assert reply.seconds < 2 * first + queue


def test_metas_leave_regular_work_its_share(with_metas: Target, steps_of: int) -> None:
    """However many pipelines are in a hurry: a model that is asked directly is not kept waiting by them."""
    address = with_metas.process.address
    with (
        Closed(address, lambda n: staged([steps_of // 80] * STAGES, n), 6) as metas,
        Closed(address, lambda n: echo(model="light", start=float(n % 1000)), 24) as regular,
    ):
        time.sleep(SETTLING_SECONDS)
        before = with_metas.page()
        time.sleep(2 * SECONDS)
        after = with_metas.page()
    for traffic in (metas, regular):
        traffic.assert_all_right()
    spent = {
        model: change(before, after, "worker_compute_seconds_total", model) for model in ("light", "slow")
    }
    print(spent)
    # Half of it is its share; a run of the other is five executions that nothing interrupts.
    assert spent["light"] > 0.2 * sum(spent.values())
    assert spent["slow"] > 0.2 * sum(spent.values())


def test_metas_and_models_at_once(with_metas: Target) -> None:
    """Every answer is its own, and only what clients asked for is counted as asked."""
    address, before = with_metas.process.address, with_metas.page()
    with ExitStack() as stack:

        def closed(model: str, at_once: int) -> Traffic:
            def make(number: int) -> pb.ModelInferRequest:
                start = float(number % 1000)
                return staged([20, 30], number) if model == "staged" else echo(model=model, start=start)

            traffic: Traffic = stack.enter_context(Closed(address, make, at_once))
            return traffic

        sent = {model: closed(model, 4) for model in ("echo", "light", *METAS)}
        time.sleep(SECONDS)
    with_metas.assert_quiet()
    after = with_metas.page()

    for traffic in sent.values():
        traffic.assert_all_right()
    answered = {model: len(traffic.outcomes) for model, traffic in sent.items()}
    print(answered)
    counted = {model: change(before, after, "worker_requests_total", model, code="OK") for model in sent}
    assert counted == answered
    assert change(before, after, "worker_requests_total", "slow") == 0
    executed = {
        model: change(before, after, "worker_requests_served_total", model) for model in ("echo", "slow")
    }
    assert executed == {"echo": answered["echo"] + answered["via_echo"], "slow": 2 * answered["staged"]}


def test_what_is_given_up_begins_no_further_stage(
    with_metas: Target, hooks_noted: HookLog, steps_of: int
) -> None:
    """Given up at the gate, in a stage, between stages; whoever comes after finds the gate open."""
    before = with_metas.page()
    names = [unique("given-up") for _ in range(6)]
    stage = steps_of // 8
    sent = [with_metas.client.start_infer(staged([stage] * STAGES, name=name)) for name in names]
    late = with_metas.client.start_infer(staged([4 * stage] * STAGES, name=unique("late")), timeout=0.5)
    eventually_sync(lambda: any(hooks_noted.has(f"stage 1 {name}") for name in names))
    # Two at a time pass the gate: the others have begun nothing.
    assert sum(hooks_noted.has(f"begin {name}") for name in names) <= 2
    for one in sent:
        one.cancel()
    assert {reply.code for reply in replies(sent)} == {grpc.StatusCode.CANCELLED}
    assert late.reply().code is grpc.StatusCode.DEADLINE_EXCEEDED
    kept = with_metas.client.infer(staged([1] * STAGES, name=unique("kept")))
    kept.ok()

    with_metas.assert_quiet()
    after = with_metas.page()
    begun = [line for line in hooks_noted.lines() if line.startswith("stage ") and "given-up" in line]
    executed = change(before, after, "worker_requests_served_total", "slow") - STAGES
    assert executed <= len(begun) + STAGES  # those of the one that was late
    assert not any(line.startswith(f"stage {STAGES - 1} ") for line in begun)
    assert by_code(before, after) == {"CANCELLED": 6, "DEADLINE_EXCEEDED": 1, "OK": 1}


def test_what_is_given_up_before_its_first_stage_runs_none(with_metas: Target, hooks_noted: HookLog) -> None:
    before = with_metas.page()
    left, late = unique("left"), unique("late")
    leaving = with_metas.client.start_infer(staged([1], name=left, seconds=0.4))
    expiring = with_metas.client.start_infer(staged([1], name=late, seconds=0.4), timeout=0.2)
    eventually_sync(lambda: hooks_noted.has(f"begin {left}") and hooks_noted.has(f"begin {late}"))

    leaving.cancel()

    assert leaving.reply().code is grpc.StatusCode.CANCELLED
    assert expiring.reply().code is grpc.StatusCode.DEADLINE_EXCEEDED
    eventually_sync(lambda: hooks_noted.has(f"end {left}") and hooks_noted.has(f"end {late}"))
    with_metas.assert_quiet()
    assert change(before, with_metas.page(), "worker_requests_served_total", "slow") == 0


def by_code(before: Page, after: Page) -> dict[str, float]:
    old, new = before.by_code("staged"), after.by_code("staged")
    return {code: moved for code in new if (moved := new[code] - old.get(code, 0))}
