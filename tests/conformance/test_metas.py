"""Metas: who waits for whom, what ends with a request, what counts, what clients do not get to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from tests.conformance.test_metrics import statistics
from tests.support.busy import busy_device, still_running, unique
from tests.support.client import Pending, replies
from tests.support.hooklog import HookLog
from tests.support.messages import arrays, echo, floats, infer, slow, tensor, text
from tests.support.settings import ODD_NAMES, QUEUE_DEPTH
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import control_pb2, control_pb2_grpc
from reactant_proto import inference_pb2 as pb

AT_ONCE = 2
"""Metas that call models and run at a time: the default."""

DEADLINE = 0.15
LATENESS = 0.25
"""As in test_deadlines: a machine that does other things beside."""

Code = grpc.StatusCode
NOT_STARTED = {"reactant-not-started": "1"}


def staged(
    *steps: int,
    id: str = "",  # noqa: A002 (the field's name)
    seconds: float = 0.0,
    timeout: float = 0.0,
) -> pb.ModelInferRequest:
    """A request of `staged`: so many seconds on its thread, then a stage of `slow` for each of `steps`."""
    return infer(
        "staged",
        tensor("X", floats(1, start=1.0)),
        tensor("steps", np.array(steps, np.int32)),
        id=id,
        parameters={"seconds": float(seconds), "timeout": int(timeout * 1e6)},
    )


@contextmanager
def busy_metas(target: Target, log: HookLog, seconds: float) -> Iterator[list[Pending]]:
    """As many metas as may are on their threads inside the block; leaving it waits for the answers."""
    names = [unique("busy-meta") for _ in range(AT_ONCE * target.replicas)]
    pending = [target.client.start_infer(staged(1, id=name, seconds=seconds)) for name in names]
    eventually_sync(lambda: all(log.has(f"begin {name}") for name in names), what="the metas are busy")
    try:
        yield pending
    finally:
        for one in pending:
            one.reply().ok()
        target.assert_quiet()


def assert_late(reply: Any) -> None:
    assert reply.code is Code.DEADLINE_EXCEEDED, f"{reply.code}: {reply.details}"
    assert DEADLINE - 0.01 <= reply.seconds < DEADLINE + LATENESS


@pytest.mark.slow
def test_metas_that_call_models_wait_for_each_other_and_nobody_waits_for_them(
    target: Target, hook_log: HookLog
) -> None:
    name = unique("third")
    with busy_metas(target, hook_log, 1.0) as running:
        third = target.client.start_infer(staged(1, id=name))
        eventually_sync(lambda: target.depth("staged") == 1, what="the third waits")
        target.client.infer(infer("alone", tensor("text", text(b"a")))).ok()
        target.client.infer(slow(1)).ok()
        target.client.infer(echo()).ok()
        assert still_running(running)
        assert not hook_log.has(f"begin {name}")
    third.reply().ok()
    assert hook_log.has(f"begin {name}")


@pytest.mark.slow
def test_a_deadline_that_passes_before_a_meta_begins(target: Target, hook_log: HookLog) -> None:
    name = unique("late")
    with busy_metas(target, hook_log, 1.0) as running:
        assert_late(target.client.infer(staged(1, id=name, timeout=DEADLINE)))
        assert target.depth("staged") == 0
        assert still_running(running)
    assert not hook_log.has(f"begin {name}")


@pytest.mark.slow
def test_a_deadline_that_passes_in_a_stage_ends_the_meta_there(
    target: Target, hook_log: HookLog, steps_of: int
) -> None:
    executed, name = target.executed("slow"), unique("late")

    assert_late(target.client.infer(staged(steps_of, 1, id=name, timeout=DEADLINE)))

    eventually_sync(lambda: hook_log.has(f"end {name}"), what="the meta has ended")
    assert not hook_log.has(f"stage 1 {name}")
    eventually_sync(lambda: target.executed("slow") == executed + 1)
    target.assert_well()
    assert target.executed("slow") == executed + 1


@pytest.mark.slow
def test_cancelled_while_its_stage_is_queued(target: Target, hook_log: HookLog, steps_of: int) -> None:
    executed, name = target.executed("slow"), unique("left")
    cancelled = target.page().by_code("staged").get("CANCELLED", 0)
    with busy_device(target, hook_log, 2 * steps_of) as running:
        left = target.client.start_infer(staged(1, 1, id=name))
        eventually_sync(lambda: target.depth("slow") == 1, what="its first stage is queued")
        left.cancel()
        eventually_sync(lambda: target.depth("slow") == 0, 1.5, what="the stage is taken out")
        eventually_sync(lambda: hook_log.has(f"end {name}"), 1, what="the meta has ended")
        assert still_running(running)
        assert target.page().by_code("staged").get("CANCELLED", 0) == cancelled + 1
    assert target.executed("slow") == executed + len(running)


@pytest.mark.slow
@pytest.mark.worker_only("what one device runs first")
def test_a_stage_goes_before_requests_that_wait(target: Target, hook_log: HookLog, steps_of: int) -> None:
    """From its second on, and but for those on their way to the device already."""
    name = unique("ahead")
    meta = target.client.start_infer(staged(steps_of, 1, id=name))
    eventually_sync(
        lambda: hook_log.has(f"stage 0 {name}") and target.depth("slow") == 0, what="the first stage runs"
    )
    regular = [target.client.start_infer(slow(steps_of // 6)) for _ in range(6)]
    eventually_sync(lambda: target.depth("slow") >= 5, what="requests wait")
    meta.reply().ok()
    assert sum(not one.done() for one in regular) >= 3
    for one in regular:
        one.reply().ok()


@pytest.mark.slow
def test_counters_are_the_metas_and_compute_is_the_models(target: Target) -> None:
    def counted() -> dict[str, float]:
        page = target.page()
        return {
            "requests of the meta": page.by_code("via_echo").get("OK", 0),
            "requests of the model": page.by_code("echo").get("OK", 0),
            "executions of the meta": target.executed("via_echo"),
            "executions of the model": target.executed("echo"),
        }

    def told() -> list[int]:
        meta, model = statistics(target, "via_echo"), statistics(target, "echo")
        return [
            meta.inference_stats.success.count,
            meta.inference_count,
            model.inference_stats.success.count,
            model.inference_count,
            model.inference_stats.compute_infer.count,
        ]

    before, told_before = counted(), told()
    for _ in range(3):
        target.client.infer(echo(2, model="via_echo")).ok()

    after = counted()
    assert {name: after[name] - before[name] for name in after} == {
        "requests of the meta": 3,
        "requests of the model": 0,
        "executions of the meta": 0,
        "executions of the model": 3,
    }
    assert [b - a for a, b in zip(told_before, told(), strict=True)] == [3, 3, 0, 0, 3]


def test_a_meta_has_no_batch_axis_and_the_weights_of_its_models(target: Target) -> None:
    page = target.page()
    for name in ("hidden", "via_hidden"):
        assert page.value("worker_model_weight_bytes", model=name) == 16 * target.replicas
    metadata = target.client.call("ModelMetadata", pb.ModelMetadataRequest(name="via_hidden")).ok()
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [("X", "FP32", [-1, 4])]
    config = target.client.call("ModelConfig", pb.ModelConfigRequest(name="via_hidden")).ok().config
    assert (config.max_batch_size, list(config.input[0].dims)) == (0, [-1, 4])


@pytest.mark.worker_only("a gateway does not serve ModelControlStatus")
def test_control_tells_of_a_meta(target: Target) -> None:
    stub = control_pb2_grpc.ControlServiceStub(target.client.channel)
    answer = stub.ModelControlStatus(control_pb2.ModelControlStatusRequest(), timeout=10)
    models = {model.name: model for model in answer.models}
    assert "hidden" not in models
    meta = models["via_hidden"]
    assert (meta.weight_bytes, list(meta.calls)) == (16, ["hidden"])
    assert (meta.max_batch_size, meta.batch_input, meta.idempotent) == (0, "", False)


@pytest.mark.parametrize(
    "rpc", ["ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "ModelInfer"]
)
def test_to_a_client_an_internal_model_does_not_exist(target: Target, rpc: str) -> None:
    """It gets the answer that it gets for a name that no model has."""
    target.client.infer(echo(model="via_hidden")).ok()

    def answer(name: str) -> tuple[Code, str]:
        field = "model_name" if rpc == "ModelInfer" else "name"
        reply = target.client.call(rpc, getattr(pb, f"{rpc}Request")(**{field: name}))
        return reply.code, reply.details.replace(name, "it")

    assert answer("hidden") == answer("no-such") == (Code.NOT_FOUND, "model 'it' is not found")


def test_an_internal_model_is_listed_nowhere(target: Target) -> None:
    target.client.infer(echo(model="hidden"))

    assert "hidden" not in target.client.index()
    all_statistics = target.client.call("ModelStatistics", pb.ModelStatisticsRequest()).ok()
    assert "hidden" not in {one.name for one in all_statistics.model_stats}
    assert b"hidden" not in target.process.get("/readyz").body.replace(b"via_hidden", b"")
    for series in ("worker_requests_total", target.requests_total):
        assert "hidden" not in target.page().labels("model", series)
    with pytest.raises(grpc.RpcError) as unknown:
        target.client.health.Check(HealthCheckRequest(service="hidden"), timeout=5)
    assert unknown.value.code() is Code.NOT_FOUND


@pytest.fixture
def fresh(explicit: Target) -> Iterator[Target]:
    """The explicit worker with `echo` alone, before and after."""
    yield explicit
    for model in explicit.client.index(ready=True):
        if model != "echo":
            explicit.client.unload(model).ok()


@pytest.mark.slow
def test_q4_queued_for_a_thread_of_metas(fresh: Target, explicit_log: HookLog) -> None:
    fresh.client.load("staged").ok()
    with busy_metas(fresh, explicit_log, 2.0):
        arrived = [fresh.client.start_infer(staged(1)) for _ in range(20 * fresh.replicas)]
        room = QUEUE_DEPTH * fresh.replicas
        eventually_sync(lambda: sum(one.done() for one in arrived) >= len(arrived) - room, 1.5)
        assert fresh.depth("staged") == room
    outcomes = replies(arrived)
    refused = [reply for reply in outcomes if reply.code is not Code.OK]
    assert len(outcomes) - len(refused) == room
    for reply in refused:
        assert reply.code is Code.RESOURCE_EXHAUSTED
        assert reply.trailers == NOT_STARTED
        assert "'staged'" in reply.details
    fresh.assert_well()


def test_a_meta_comes_with_its_models_and_waits_for_those_that_go(fresh: Target) -> None:
    client = fresh.client
    client.load("via_add2").ok()
    assert client.index(ready=True).keys() == {"add2", "echo", "via_add2"}

    client.unload("add2").ok()

    eventually_sync(lambda: not client.ready("via_add2"), 3)
    state, reason = client.index()["via_add2"]
    assert (state, reason) == ("UNAVAILABLE", "needs model 'add2', which is not there")
    refused = client.infer(infer("via_add2", tensor("A", floats()), tensor("B", floats())))
    assert refused.code is Code.UNAVAILABLE
    assert "'via_add2'" in refused.details
    assert refused.trailers == NOT_STARTED

    client.load("add2").ok()

    eventually_sync(lambda: client.ready("via_add2"), 3)
    assert client.index()["via_add2"] == ("READY", "")
    client.infer(infer("via_add2", tensor("A", floats()), tensor("B", floats()))).ok()
    fresh.assert_well()


def test_a_meta_that_calls_a_meta_is_not_served(fresh: Target) -> None:
    reply = fresh.client.load("via_via")

    assert reply.code is Code.FAILED_PRECONDITION
    assert "'via_echo', which is a meta" in reply.details
    assert fresh.client.index()["via_via"][0] == "UNAVAILABLE"
    assert fresh.client.infer(echo(model="via_via")).code is Code.UNAVAILABLE
    fresh.client.unload("via_via").ok()
    fresh.assert_well()


def test_an_internal_model_is_loaded_and_unloaded_with_its_meta_only(fresh: Target) -> None:
    client = fresh.client
    assert "hidden" not in client.index()
    for refused in (client.load("hidden"), client.unload("hidden")):
        assert refused.code is Code.NOT_FOUND

    client.load("via_hidden").ok()

    assert client.index(ready=True).keys() == {"echo", "via_hidden"}
    assert "hidden" not in client.index()
    assert "hidden" in fresh.page().labels("model", "worker_compute_seconds_total")
    client.infer(echo(model="via_hidden")).ok()
    assert client.unload("hidden").code is Code.NOT_FOUND

    client.unload("via_hidden").ok()

    assert "hidden" not in fresh.page().labels("model")
    fresh.assert_well()


@pytest.mark.slow
def test_l4_unusual_names_of_called_models(fresh: Target) -> None:
    fresh.client.load("via_odd").ok()
    for index, model in enumerate(ODD_NAMES):
        request = echo(2, model="via_odd", start=float(index), parameters={"model": model})
        outputs = arrays(fresh.client.infer(request).ok())
        np.testing.assert_array_equal(outputs["Y"], floats(2, start=float(index)))
    reply = fresh.client.infer(echo(model="via_odd", parameters={"model": "../echo"}))
    assert reply.code is Code.INTERNAL
    assert "'../echo'" in reply.details
    fresh.assert_well()
