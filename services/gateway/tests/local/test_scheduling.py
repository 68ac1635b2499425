"""GatewayControlService over a scheduling that is scripted."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from services.gateway.tests.support.steering import COLD, HOT, FakeSteering

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.errors import FailedPrecondition, InvalidArgument, ModelNotFound
from reactant_core.packing.messages import POLICY_FIELDS
from reactant_core.packing.status import ModelStatus
from reactant_core.testing import async_test, eventually
from reactant_proto import gateway_pb2 as pb


async def status(n: Any) -> pb.GetSchedulingStatusResponse:
    answer: pb.GetSchedulingStatusResponse = await n.scheduling.GetSchedulingStatus(
        pb.GetSchedulingStatusRequest()
    )
    return answer


def set_policy(n: Any, *paths: str, **policy: Any) -> Any:
    request = pb.SetSchedulingPolicyRequest(policy=pb.SchedulingPolicy(**policy))
    request.update_mask.paths.extend(paths)
    return n.scheduling.SetSchedulingPolicy(request)


def test_the_policy_has_every_setting_but_those_of_single_models() -> None:
    assert set(POLICY_FIELDS) == set(SchedulingConfig.model_fields) - {"models"}


@async_test
async def test_status_tells_everything(node: Any) -> None:
    async with node({}, steering=FakeSteering()) as n:
        told = await status(n)

        assert (told.policy.mode, told.policy.default_replicas.all, told.policy.hysteresis) == (
            "lpt_packing",
            True,
            0.1,
        )
        assert (told.placed, told.last_repack_seconds_ago, dict(told.repacks)) == (
            True,
            61.5,
            {"compute": 3, "start": 1},
        )
        assert (told.compute_seconds_until_repack, list(told.warnings), told.persisted) == (
            12.0,
            ["look here"],
            False,
        )
        assert list(told.workers) == [
            pb.WorkerLoad(
                name="w0",
                ready=True,
                discipline="fifo",
                homes=2,
                compute_share=0.5,
                weight_bytes=300,
                weight_budget_bytes=1000,
                memory_share=0.3,
                requests_in_flight=4,
            )
        ]
        hot, cold = told.models
        assert hot == pb.ModelPlacement(
            name="hot",
            replicas=pb.Replicas(all=True),
            homes=["w0", "w1"],
            eligible=["w0", "w1"],
            demand=0.4,
            seconds_per_item=0.002,
            weight_bytes=100,
            fill_mode="run",
            fill_factor=2,
            fill_quantum=64,
            requests_in_flight=3,
            own_settings=True,
        )
        assert cold.replicas == pb.Replicas(count=1)
        assert not cold.HasField("seconds_per_item")
        assert told.last_repack == pb.RepackReport(
            trigger="compute",
            placed=1,
            held=5,
            best_gain=0.25,
            compute_seconds=300.5,
            wall_seconds=12.5,
            bytes_moved=200,
            imbalance_before=2,
            imbalance_after=1.1,
            moves=[pb.Move(model="hot", gone=["w2"], new=["w0", "w1"], bytes=200, reason="balance")],
            warnings=["hot wants 3 replicas and has 2 workers"],
        )


@async_test
async def test_before_the_first_repack(node: Any) -> None:
    steering = FakeSteering()
    steering.last = None
    async with node({}, steering=steering) as n:
        told = await status(n)
        assert not told.HasField("last_repack")
        assert not told.HasField("compute_seconds_until_repack")


@async_test
async def test_only_what_the_mask_names_is_set(node: Any) -> None:
    steering = FakeSteering()
    async with node({}, steering=steering) as n:
        values = {"hysteresis": 0.5, "compaction_interval": 7, "default_replicas": pb.Replicas(count=3)}
        answer = await set_policy(n, "hysteresis", "default_replicas", **values)

        assert steering.told == [{"hysteresis": 0.5, "default_replicas": 3}]
        assert (answer.policy.hysteresis, answer.policy.default_replicas.count) == (0.5, 3)
        assert (answer.policy.compaction_interval, answer.persisted) == (1, False)
        await set_policy(n, "default_replicas", "hysteresis", default_replicas=pb.Replicas(all=True))
        assert steering.told[1:] == [{"default_replicas": "all", "hysteresis": 0.0}]


@async_test
async def test_what_is_no_field_reaches_the_judge_with_the_rest(node: Any, failure: Any) -> None:
    steering = FakeSteering()
    steering.refuses = InvalidArgument("both, named")
    async with node({}, steering=steering) as n:
        error = await failure(set_policy(n, "hysterisis", "mode", "default_replicas.count", mode="lpt"))
        assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "both, named")
        steering.refuses = None
        await set_policy(n, "hysterisis", "mode", "default_replicas.count", "default_replicas", mode="lpt")
        assert steering.told == [
            {"hysterisis": None, "mode": "lpt", "default_replicas.count": None, "default_replicas": 0}
        ]


@async_test
async def test_an_empty_mask_is_refused_with_what_it_may_name(node: Any, failure: Any) -> None:
    steering = FakeSteering()
    async with node({}, steering=steering) as n:
        error = await failure(set_policy(n, mode="round_robin"))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details().startswith("update_mask names no field; accepted are mode, work_basis")
        assert not steering.told


def place(n: Any, model: str, **fields: Any) -> Any:
    return n.scheduling.SetModelPlacement(pb.SetModelPlacementRequest(model=model, **fields), timeout=10)


@async_test
async def test_a_models_placement_is_set_and_what_came_of_it_told(node: Any) -> None:
    steering = FakeSteering()
    async with node({}, steering=steering) as n:
        answer = await place(n, "hot", replicas=pb.Replicas(count=2))
        await place(n, "hot", replicas=pb.Replicas(all=True), fill_mode="spread", fill_factor=0.0)
        await place(n, "hot", fill_factor=3.0, allow_unknown=True)

        assert steering.told == [
            ("hot", 2, None, None, False),
            ("hot", "all", "spread", 0.0, False),
            ("hot", None, None, 3.0, True),
        ]
        assert (answer.placement.name, list(answer.placement.homes)) == ("hot", ["w0", "w1"])
        assert (answer.persisted, answer.mode) == (False, "lpt_packing")
        assert not (await place(n, "later", fill_mode="run")).placement.HasField("replicas")


@async_test
async def test_a_placement_is_answered_once_it_has_settled_or_time_is_short(node: Any) -> None:
    steering = FakeSteering()
    steering.hold.clear()
    async with node({}, steering=steering) as n:
        call = asyncio.ensure_future(place(n, "hot", fill_mode="run"))
        await eventually(lambda: steering.told)
        assert not call.done()
        steering.models = [COLD, ModelStatus(**{**_fields(HOT), "homes": ("w1",)})]
        steering.hold.set()
        assert list((await call).placement.homes) == ["w1"]

        steering.hold.clear()
        request = pb.SetModelPlacementRequest(model="hot", fill_mode="run")
        assert (await n.scheduling.SetModelPlacement(request, timeout=0.3)).placement.name == "hot"


def _fields(model: ModelStatus) -> dict[str, Any]:
    return {name: getattr(model, name) for name in ModelStatus.__slots__}


@async_test
async def test_a_placement_of_nothing_or_nobody(node: Any, failure: Any) -> None:
    steering = FakeSteering()
    async with node({}, steering=steering) as n:
        error = await failure(place(n, "hot"))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == "model 'hot': nothing to set; give replicas, fill_mode or fill_factor"
        assert not steering.told
        error = await failure(place(n, "a/b", fill_mode="run", allow_unknown=True))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details().startswith("model 'a/b': no model can have this name")
        assert not steering.told
        steering.refuses = ModelNotFound("model 'hott' is not found")
        error = await failure(place(n, "hott", fill_mode="run"))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert error.details() == "model 'hott' is not found (did you mean 'hot'?)"


def repack(n: Any, wait: float = 0.0, timeout: float = 10.0) -> Any:
    return n.scheduling.Repack(pb.RepackRequest(wait_seconds=wait), timeout=timeout)


@async_test
async def test_a_repack_is_waited_for_as_long_as_is_asked(node: Any) -> None:
    steering = FakeSteering()
    async with node({}, steering=steering) as n:
        answer = await repack(n, wait=60)
        assert (answer.done, answer.report.trigger, answer.report.placed) == (True, "compute", 1)

        steering.hold.clear()
        for wait in (0, 0.01):
            answer = await repack(n, wait=wait)
            assert (answer.done, answer.HasField("report")) == (False, False)
        steering.hold.set()
        await eventually(lambda: steering.repacks == 3)


@async_test
async def test_a_repack_outlives_the_client_that_asked(node: Any, failure: Any) -> None:
    steering = FakeSteering()
    steering.hold.clear()
    async with node({}, steering=steering) as n:
        error = await failure(repack(n, wait=60, timeout=0.1))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        steering.hold.set()
        await eventually(lambda: steering.repacks == 1)


@pytest.mark.parametrize("wait", [0.0, 5.0])
@async_test
async def test_a_repack_that_cannot_be_says_why(node: Any, failure: Any, wait: float) -> None:
    steering = FakeSteering()
    steering.refuses = FailedPrecondition("the mode is round_robin")
    async with node({}, steering=steering) as n:
        error = await failure(repack(n, wait))
        assert (error.code(), error.details()) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "the mode is round_robin",
        )


@pytest.mark.parametrize("wait", [-1.0, 601.0, float("nan"), float("inf")])
@async_test
async def test_a_wait_that_is_none(node: Any, failure: Any, wait: float) -> None:
    steering = FakeSteering()
    async with node({}, steering=steering) as n:
        error = await failure(repack(n, wait))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == f"wait_seconds is {wait:g}; accepted is 0 to 600"
        assert steering.repacks == 0


@async_test
async def test_reflection_lists_and_describes_it(node: Any) -> None:
    async with node({}, steering=FakeSteering()) as n:
        call = reflection_pb2_grpc.ServerReflectionStub(n.channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        listed = {service.name for service in (await call.read()).list_services_response.service}
        assert listed == set(n.server.services)
        assert "reactant.GatewayControlService" in listed
        mask = "google.protobuf.FieldMask"
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=mask))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto
        call.cancel()
