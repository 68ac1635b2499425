"""ControlService: what a worker says of its models. A gateway asks it and does not serve it."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.support.messages import echo, floats, infer, tensor
from tests.support.settings import SHARED_MODELS
from tests.support.target import Target

from reactant_proto import control_pb2, control_pb2_grpc

pytestmark = pytest.mark.worker_only("a gateway does not serve ControlService")


def status(target: Target) -> Any:
    stub: Any = control_pb2_grpc.ControlServiceStub(target.client.channel)
    return stub.ModelControlStatus(control_pb2.ModelControlStatusRequest(), timeout=10)


def model(target: Target, name: str) -> Any:
    (found,) = [one for one in status(target).models if one.name == name]
    return found


def test_the_worker_as_a_whole(target: Target) -> None:
    answer = status(target)

    assert answer.worker == "worker0"
    assert answer.control_mode == "dynamic"
    assert answer.discipline == "fifo"
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

    assert (found.residency, found.device_resident, found.host_resident) == ("device", True, True)
    assert (found.weight_bytes, found.weight) == (12, 1.0)


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
    assert (found.residency, found.device_resident, found.max_batch_size) == ("", False, 0)
    explicit.client.infer(echo()).ok()
