"""A deadline is kept wherever the request stands, and nothing that missed it reaches the device."""

from __future__ import annotations

import grpc
import pytest
from tests.support.busy import busy_device, busy_hooks, still_running, unique
from tests.support.client import Reply
from tests.support.hooklog import HookLog
from tests.support.messages import echo, slow, slow_hook
from tests.support.settings import HOOK_THREADS
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

DEADLINE = 0.15
LATENESS = 0.25
"""The rule is 50 ms; this much is left to a machine that does other things beside."""

_MICROSECONDS = int(DEADLINE * 1e6)
_IN_PARAMETER = {"timeout": _MICROSECONDS}


def assert_late(reply: Reply) -> None:
    assert reply.code is grpc.StatusCode.DEADLINE_EXCEEDED, f"{reply.code}: {reply.details}"
    assert DEADLINE - 0.01 <= reply.seconds < DEADLINE + LATENESS
    assert "reactant-not-started" not in reply.trailers


def counted(target: Target, model: str) -> float:
    return target.page().by_code(model).get("DEADLINE_EXCEEDED", 0)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["parameter", "gRPC"])
def test_queued_behind_a_long_execution(target: Target, hook_log: HookLog, steps_of: int, where: str) -> None:
    executed, late = target.executed("slow"), counted(target, "slow")
    with busy_device(target, hook_log, steps_of) as running:
        if where == "parameter":
            reply = target.client.infer(slow(1, parameters=_IN_PARAMETER))
        else:
            reply = target.client.infer(slow(1), timeout=DEADLINE)
        assert_late(reply)
        # The server itself is done with it, while the execution it waited for goes on.
        eventually_sync(lambda: counted(target, "slow") == late + 1, 2)
        assert target.depth("slow") == 0
        assert still_running(running)

    assert target.executed("slow") == executed + len(running)


@pytest.mark.slow
def test_the_sooner_of_the_two_counts(target: Target, hook_log: HookLog, steps_of: int) -> None:
    with busy_device(target, hook_log, steps_of):
        assert_late(target.client.infer(slow(1, parameters=_IN_PARAMETER), timeout=30))
        assert_late(target.client.infer(slow(1, parameters={"timeout": 30_000_000}), timeout=DEADLINE))


@pytest.mark.slow
def test_on_the_device_it_is_answered_at_once_and_the_result_discarded(target: Target, steps_of: int) -> None:
    executed = target.executed("slow")

    assert_late(target.client.infer(slow(steps_of, parameters=_IN_PARAMETER)))

    eventually_sync(lambda: target.executed("slow") == executed + 1)
    target.assert_well()


@pytest.mark.slow
def test_waiting_for_a_hook_thread(target: Target, hook_log: HookLog) -> None:
    executed, name = target.executed("slow_hook"), unique("late")
    with busy_hooks(target, hook_log, HOOK_THREADS, 0.8) as running:
        assert_late(target.client.infer(slow_hook(0, id=name, parameters_too=_IN_PARAMETER)))

    assert not hook_log.has(f"begin {name}")
    assert target.executed("slow_hook") == executed + len(running)


@pytest.mark.slow
def test_inside_a_hook(target: Target, hook_log: HookLog) -> None:
    executed, name = target.executed("slow_hook"), unique("late")

    assert_late(target.client.infer(slow_hook(0.6, id=name, parameters_too=_IN_PARAMETER)))

    eventually_sync(lambda: hook_log.has(f"end {name}"))
    target.client.infer(slow_hook(0)).ok()
    assert target.executed("slow_hook") == executed + 1
    target.assert_well()


def test_passed_before_anything_could_happen(target: Target) -> None:
    executed = target.executed("slow")

    reply = target.client.infer(slow(1, parameters={"timeout": 1}))

    assert reply.code is grpc.StatusCode.DEADLINE_EXCEEDED
    target.client.infer(slow(1)).ok()
    assert target.executed("slow") == executed + 1


@pytest.mark.parametrize(
    "request_",
    [echo(), echo(parameters={"timeout": 0}), echo(parameters={"timeout": 2**63 - 1})],
    ids=["none", "zero is none", "in 292,000 years"],
)
def test_no_deadline_to_speak_of(target: Target, request_: pb.ModelInferRequest) -> None:
    target.client.start_infer(request_, timeout=None).reply().ok()
