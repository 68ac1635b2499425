"""What is refused at once because there is too much already (case Q4)."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from tests.support.busy import busy_device, busy_hooks, steps_for
from tests.support.client import Reply, replies
from tests.support.hooklog import HookLog
from tests.support.messages import slow, slow_hook
from tests.support.settings import FEW_HOOK_THREADS, QUEUE_DEPTH
from tests.support.target import Target

from reactant_core.testing import eventually_sync

ARRIVALS = 20
"""At each worker."""
AT_ONCE = 0.25
"""The rule is 100 ms; the rest is left to a machine that does other things beside."""


def assert_refused(reply: Reply) -> None:
    assert reply.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "slow" in reply.details
    assert str(QUEUE_DEPTH) in reply.details
    assert reply.trailers == {"reactant-not-started": "1"}
    assert reply.seconds < AT_ONCE


@pytest.fixture
def loaded(explicit: Target) -> Iterator[Target]:
    for model in ("slow", "slow_hook"):
        explicit.client.load(model).ok()
    yield explicit
    for model in ("slow", "slow_hook"):
        explicit.client.unload(model).ok()


@pytest.mark.slow
def test_q4_queued_for_the_device(loaded: Target, explicit_log: HookLog) -> None:
    long = steps_for(2.0, loaded.client)
    with busy_device(loaded, explicit_log, long):
        arrived = [loaded.client.start_infer(slow(1)) for _ in range(ARRIVALS * loaded.replicas)]
        room = QUEUE_DEPTH * loaded.replicas
        eventually_sync(lambda: sum(one.done() for one in arrived) == len(arrived) - room, 1.5)
        assert loaded.depth("slow") == room
        # A full queue is one model's affair.
        loaded.client.infer(slow_hook(0)).ok()

    outcomes = replies(arrived)
    refused = [reply for reply in outcomes if reply.code is not grpc.StatusCode.OK]
    assert len(outcomes) - len(refused) == room
    for reply in refused:
        assert_refused(reply)
    loaded.assert_well()


@pytest.mark.slow
def test_q4_queued_for_a_hook_thread(loaded: Target, explicit_log: HookLog) -> None:
    """Running is also who is in a hook: the bound is about those who wait."""
    with busy_hooks(loaded, explicit_log, FEW_HOOK_THREADS, 3.0):
        arrived = [loaded.client.start_infer(slow_hook(0)) for _ in range(ARRIVALS * loaded.replicas)]
        room = QUEUE_DEPTH * loaded.replicas
        eventually_sync(lambda: sum(one.done() for one in arrived) >= len(arrived) - room, 2.5)

    outcomes = replies(arrived)
    refused = [reply for reply in outcomes if reply.code is not grpc.StatusCode.OK]
    assert len(outcomes) - len(refused) == room
    for reply in refused:
        assert_refused(reply)
    loaded.assert_well()
