"""ControlService: what a worker says of its models, and how it is steered. Gateways: test_gateway_control."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.support.messages import echo, floats, infer, tensor
from tests.support.settings import SHARED_MODELS
from tests.support.target import Target

from reactant_proto import control_pb2, control_pb2_grpc

pytestmark = pytest.mark.worker_only("of ControlService a gateway serves CompactMemory alone")


def call(target: Target, rpc: str, **fields: Any) -> Any:
    """Calls an RPC of ControlService with a request of these fields."""
    stub = control_pb2_grpc.ControlServiceStub(target.client.channel)
    request = getattr(control_pb2, f"{rpc}Request")(**fields)
    return getattr(stub, rpc)(request, timeout=10)


def refusal(target: Target, rpc: str, **fields: Any) -> tuple[grpc.StatusCode, str]:
    """Status and text of a call that must fail."""
    with pytest.raises(grpc.RpcError) as error:
        call(target, rpc, **fields)
    failed: Any = error.value
    return failed.code(), failed.details()


def status(target: Target) -> Any:
    return call(target, "ModelControlStatus")


def model(target: Target, name: str) -> Any:
    (found,) = [one for one in status(target).models if one.name == name]
    return found


def test_the_worker_as_a_whole(target: Target) -> None:
    answer = status(target)

    assert answer.worker == "worker0"
    assert answer.control_mode == "dynamic"
    assert answer.discipline == "fair"
    assert answer.weight_budget_bytes == 0
    assert answer.max_concurrent_requests == 1024
    assert sorted(one.name for one in answer.models) == sorted(SHARED_MODELS)
    assert {(one.version, one.state, one.reason) for one in answer.models} == {("1", "READY", "")}
    target.assert_well()


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("echo", (4, "X", 0)),
        ("add2", (4, "A", 0)),
        ("columns", (4, "X", 1)),
        ("variants", (2, "image", 0)),
        ("unbatched", (0, "", 0)),
        ("echo_bytes", (4, "text", 0)),
    ],
)
def test_the_batch_axis(target: Target, name: str, batch: tuple[int, str, int]) -> None:
    found = model(target, name)

    assert (found.max_batch_size, found.batch_input, found.batch_axis) == batch


@pytest.mark.parametrize(("name", "idempotent"), [("echo", True), ("params", False), ("slow_hook", False)])
def test_idempotent_is_what_the_bundle_says(target: Target, name: str, idempotent: bool) -> None:
    """A manifest that is silent means yes, unless the bundle has hooks."""
    assert model(target, name).idempotent is idempotent


def test_weights(target: Target) -> None:
    found = model(target, "columns")

    assert (found.residency, found.device_resident, found.host_resident) == ("system", True, True)
    assert (found.weight_bytes, found.weight, found.max_queue_delay_ms) == (12, 1.0, 0.0)


def test_counters(target: Target) -> None:
    before = model(target, "add2")
    for _ in range(2):
        target.client.infer(infer("add2", tensor("A", floats(3)), tensor("B", floats(3)))).ok()
    after = model(target, "add2")

    assert after.queue_depth == 0
    assert after.requests_served - before.requests_served == 2
    assert after.dispatches - before.dispatches == 2
    assert after.rows_served - before.rows_served == 6
    assert after.compute_seconds > before.compute_seconds


def test_a_model_that_failed_to_load(explicit: Target) -> None:
    assert explicit.client.load("broken").code is not grpc.StatusCode.OK

    found = model(explicit, "broken")

    assert found.state == "UNAVAILABLE"
    assert "executable_inputs" in found.reason
    assert (found.residency, found.device_resident, found.max_batch_size) == ("system", False, 0)
    explicit.client.infer(echo()).ok()


def test_a_weight_is_in_force_at_once_and_for_later_versions(explicit: Target) -> None:
    call(explicit, "SetModelPolicy", model="echo", weight=2.5)
    assert model(explicit, "echo").weight == 2.5

    explicit.client.load("echo").ok()
    assert model(explicit, "echo").weight == 2.5
    explicit.client.unload("echo").ok()
    explicit.client.load("echo").ok()
    assert model(explicit, "echo").weight == 2.5

    call(explicit, "SetModelPolicy", model="echo", weight=1)
    explicit.client.infer(echo()).ok()


@pytest.mark.parametrize(
    ("name", "weight", "code"),
    [
        ("echo", 0, grpc.StatusCode.INVALID_ARGUMENT),
        ("echo", -1, grpc.StatusCode.INVALID_ARGUMENT),
        ("echo", 2e6, grpc.StatusCode.INVALID_ARGUMENT),
        ("echo", float("nan"), grpc.StatusCode.INVALID_ARGUMENT),
        ("nobody", 2, grpc.StatusCode.NOT_FOUND),
        ("", 2, grpc.StatusCode.NOT_FOUND),
    ],
)
def test_a_weight_that_cannot_be(target: Target, name: str, weight: float, code: grpc.StatusCode) -> None:
    refused, details = refusal(target, "SetModelPolicy", model=name, weight=weight)

    assert refused is code
    assert f"'{name}'" in details
    assert model(target, "echo").weight == 1.0


def test_residency_only_in_explicit_mode(target: Target) -> None:
    code, details = refusal(target, "SetModelResidency", model="echo", residency="device")

    assert code is grpc.StatusCode.UNAVAILABLE
    assert "explicit" in details
    assert model(target, "echo").residency == "system"


def test_a_floor_that_was_set_holds_for_later_versions(explicit: Target) -> None:
    for floor in ("device", "unpinned"):
        call(explicit, "SetModelResidency", model="echo", residency=floor)
        assert model(explicit, "echo").residency == floor

    explicit.client.load("echo").ok()
    found = model(explicit, "echo")
    # Nothing is evicted in this version: a floor is where weights may go, not where they are.
    assert (found.residency, found.device_resident, found.host_resident) == ("unpinned", True, True)
    explicit.client.infer(echo()).ok()
    call(explicit, "SetModelResidency", model="echo", residency="system")


def test_a_floor_that_cannot_be(explicit: Target) -> None:
    assert explicit.client.load("broken").code is not grpc.StatusCode.OK

    code, details = refusal(explicit, "SetModelResidency", model="echo", residency="gpu")
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "unpinned, system, device" in details
    code, _ = refusal(explicit, "SetModelResidency", model="nobody", residency="system")
    assert code is grpc.StatusCode.NOT_FOUND
    code, details = refusal(explicit, "SetModelResidency", model="broken", residency="device")
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "on the host" in details


def test_compaction_on_a_cpu_has_nothing_to_move(target: Target) -> None:
    answer = call(target, "CompactMemory")

    assert "nothing to move" in answer.summary
    assert answer.moved_bytes == 0
    assert answer.bytes_in_use_before == answer.bytes_in_use_after
    target.assert_well()
