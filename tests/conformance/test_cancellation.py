"""Work that nobody waits for any more is dropped from wherever it waits (case Q1)."""

from __future__ import annotations

import grpc
import pytest
from tests.support.busy import busy_device, busy_hooks, still_running, unique
from tests.support.client import Client
from tests.support.forwarder import Forwarder
from tests.support.hooklog import HookLog
from tests.support.messages import slow, slow_hook
from tests.support.process import HOST
from tests.support.settings import HOOK_THREADS
from tests.support.target import Target

from reactant_core.testing import eventually_sync


def counted(target: Target, model: str) -> float:
    return target.page().by_code(model).get("CANCELLED", 0)


@pytest.mark.slow
def test_q1_abandoned_while_queued(target: Target, hook_log: HookLog, steps_of: int) -> None:
    executed, cancelled = target.executed("slow"), counted(target, "slow")
    with (
        busy_device(target, hook_log, 2 * steps_of) as running,
        Forwarder(HOST, target.process.port) as forwarder,
        Client(forwarder.address) as other,
    ):
        lost = other.start_infer(slow(1, id=unique("lost")))
        left = target.client.start_infer(slow(1, id=unique("left")))
        late = target.client.start_infer(slow(1, id=unique("late")), timeout=0.5)
        eventually_sync(lambda: target.depth("slow") == 3, what="three requests are queued")

        forwarder.cut()
        left.cancel()

        assert left.reply().code is grpc.StatusCode.CANCELLED
        assert lost.reply().code is grpc.StatusCode.UNAVAILABLE
        assert late.reply().code is grpc.StatusCode.DEADLINE_EXCEEDED
        eventually_sync(lambda: target.depth("slow") == 0, 1, what="the queue is empty within a second")
        eventually_sync(lambda: counted(target, "slow") >= cancelled + 2, what="both count as cancelled")
        assert still_running(running), "the device was meant to be busy for longer"

    assert target.executed("slow") == executed + len(running)
    target.assert_well()


@pytest.mark.slow
def test_cancelled_while_it_waits_for_a_hook_thread(target: Target, hook_log: HookLog) -> None:
    executed, name = target.executed("slow_hook"), unique("left")
    with busy_hooks(target, hook_log, HOOK_THREADS, 0.5) as running:
        left = target.client.start_infer(slow_hook(0, id=name))
        eventually_sync(lambda: target.in_flight() == len(running) + 1)
        left.cancel()
        eventually_sync(lambda: target.in_flight() == len(running), 1)

    assert not hook_log.has(f"begin {name}")
    assert target.executed("slow_hook") == executed + len(running)


@pytest.mark.slow
def test_cancelled_inside_a_hook_it_never_reaches_the_device(target: Target, hook_log: HookLog) -> None:
    executed, name = target.executed("slow_hook"), unique("left")
    left = target.client.start_infer(slow_hook(0.3, id=name))
    eventually_sync(lambda: hook_log.has(f"begin {name}"))

    left.cancel()

    eventually_sync(lambda: target.in_flight() == 0, 1)
    eventually_sync(lambda: hook_log.has(f"end {name}"))
    target.client.infer(slow_hook(0)).ok()
    assert target.executed("slow_hook") == executed + 1


@pytest.mark.slow
def test_cancelled_on_the_device_the_result_is_discarded(
    target: Target, hook_log: HookLog, steps_of: int
) -> None:
    executed, name = target.executed("slow"), unique("left")
    left = target.client.start_infer(slow(steps_of, id=name))
    eventually_sync(lambda: hook_log.has(name) and target.depth("slow") == 0)

    left.cancel()

    eventually_sync(lambda: target.in_flight() == 0, 1)
    eventually_sync(lambda: target.executed("slow") == executed + 1)
    target.assert_well()


@pytest.mark.slow
def test_a_storm_of_cancels_leaves_nothing(target: Target) -> None:
    """Cancelled by hundreds, at every stage there is; neighbours are served."""
    for _ in range(20):
        storm = [target.client.start_infer(slow(1)) for _ in range(20)]
        for one in storm:
            one.cancel()
        target.client.infer(slow(1)).ok()

    target.assert_well()
