"""What of the control services a gateway has, and that a worker has no GatewayControlService."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.support.settings import SHARED_MODELS
from tests.support.target import Target

from reactant_proto import control_pb2, control_pb2_grpc, gateway_pb2, gateway_pb2_grpc


def scheduling(target: Target, rpc: str, **fields: Any) -> Any:
    """Calls an RPC of GatewayControlService with a request of these fields."""
    stub = gateway_pb2_grpc.GatewayControlServiceStub(target.client.channel)
    return getattr(stub, rpc)(getattr(gateway_pb2, f"{rpc}Request")(**fields), timeout=10)


def refusal(target: Target, rpc: str, **fields: Any) -> tuple[grpc.StatusCode, str]:
    """Status and text of a call that must fail."""
    with pytest.raises(grpc.RpcError) as error:
        scheduling(target, rpc, **fields)
    failed: Any = error.value
    return failed.code(), failed.details()


@pytest.fixture
def gateway(target: Target) -> Target:
    """The server, where it is a gateway; a worker is asked only whether it has the service."""
    if not target.behind_gateway:
        assert refusal(target, "GetSchedulingStatus")[0] is grpc.StatusCode.UNIMPLEMENTED
        pytest.skip("a worker has no GatewayControlService")
    return target


def test_compaction_through_a_gateway_is_every_workers(target: Target) -> None:
    answer = control_pb2_grpc.ControlServiceStub(target.client.channel).CompactMemory(
        control_pb2.CompactMemoryRequest(), timeout=10
    )

    assert "nothing to move" in answer.summary
    assert [one.error for one in answer.workers] == [""] * (target.replicas if target.behind_gateway else 0)
    target.assert_well()


def test_the_rest_of_control_service_is_a_workers(gateway: Target) -> None:
    stub = control_pb2_grpc.ControlServiceStub(gateway.client.channel)
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelControlStatus(control_pb2.ModelControlStatusRequest(), timeout=10)
    failed: Any = error.value
    assert failed.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "ask the worker itself" in failed.details()


def test_the_status_of_a_gateway_that_goes_round(gateway: Target) -> None:
    answer = scheduling(gateway, "GetSchedulingStatus")

    assert (answer.policy.mode, answer.placed, answer.persisted) == ("round_robin", False, False)
    assert not answer.HasField("last_repack")
    names = [worker.name for worker in answer.workers]
    assert names == [f"worker{index}" for index in range(gateway.replicas)]
    assert {(worker.ready, worker.discipline) for worker in answer.workers} == {(True, "fair")}
    assert {model.name for model in answer.models} >= set(SHARED_MODELS)
    (echo,) = [model for model in answer.models if model.name == "echo"]
    assert list(echo.homes) == list(echo.eligible) == names


@pytest.mark.parametrize(
    ("rpc", "fields", "code", "said"),
    [
        ("Repack", {}, "FAILED_PRECONDITION", ["lpt_packing"]),
        ("Repack", {"wait_seconds": -1}, "INVALID_ARGUMENT", ["wait_seconds", "0 to 600"]),
        ("SetSchedulingPolicy", {}, "INVALID_ARGUMENT", ["update_mask", "hysteresis"]),
        (
            "SetSchedulingPolicy",
            {
                "policy": {"hysteresis": 7, "routing_policy": "fill_rr"},
                "update_mask": {"paths": ["hysteresis", "routing_policy", "rooting_policy", "models"]},
            },
            "INVALID_ARGUMENT",
            ["hysteresis", "rooting_policy", "did you mean routing_policy", "models"],
        ),
        ("SetModelPlacement", {"model": "echo"}, "INVALID_ARGUMENT", ["'echo'", "replicas"]),
        (
            "SetModelPlacement",
            {"model": "echo", "fill_mode": "ran"},
            "INVALID_ARGUMENT",
            ["'echo'", "spread"],
        ),
        (
            "SetModelPlacement",
            {"model": "echo", "replicas": {}},
            "INVALID_ARGUMENT",
            ["'echo'", "all or a count"],
        ),
        ("SetModelPlacement", {"model": "ecko", "fill_mode": "run"}, "NOT_FOUND", ["'ecko'", "did you mean"]),
    ],
)
def test_what_is_refused(
    gateway: Target, rpc: str, fields: dict[str, Any], code: str, said: list[str]
) -> None:
    before = scheduling(gateway, "GetSchedulingStatus").policy

    refused, details = refusal(gateway, rpc, **fields)

    assert (refused.name, [word for word in said if word not in details]) == (code, []), details
    assert scheduling(gateway, "GetSchedulingStatus").policy == before
    gateway.assert_well()
