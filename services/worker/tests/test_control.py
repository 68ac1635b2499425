"""ControlService where the conformance tests cannot reach: caps, metas, failed and internal models, a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast, final

import grpc.aio
import pytest

from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_core.bundle.manifest import TensorSpec
from reactant_core.config.sections import ModelSchedulingConfig, SchedulerConfig
from reactant_core.errors import NOT_STARTED_KEY
from reactant_core.testing import async_test
from reactant_policy.scheduling.scheduler import ModelTerms
from reactant_proto import control_pb2 as pb
from reactant_worker.engine.port import EngineStatistics
from reactant_worker.models.catalog import Catalog
from reactant_worker.models.policies import ModelPolicies
from reactant_worker.models.served import ServedModel
from reactant_worker.rpc.control import ControlServicer, WorkerTerms


@final
class Refused(Exception):
    """What `abort` was told."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self.code, self.details = code, details
        super().__init__(f"{code.name}: {details}")


@final
class _Context:
    async def abort(self, code: grpc.StatusCode, details: str, trailers: Any) -> None:
        assert all(key == NOT_STARTED_KEY for key, _ in trailers)
        raise Refused(code, details)


CONTEXT = cast("grpc.aio.ServicerContext[Any, Any]", _Context())


@final
@dataclass
class FakeDevice:
    """What the servicer asks of a device."""

    kind: str = "cpu"
    used: int = 0
    largest: int = 0
    limit: int = 0

    def memory_limit(self) -> int:
        return self.limit

    def bytes_in_use(self) -> int:
        return self.used

    def largest_free_block(self) -> int:
        return self.largest


def tensor(name: str, axes: str, *dims: int) -> TensorSpec:
    return TensorSpec(name, BY_KSERVE["FP32"], axes, dims, axes.find("n") if "n" in axes else None)


def served(
    *inputs: TensorSpec,
    sizes: tuple[int, ...] = (),
    internal: bool = False,
    idempotent: bool = True,
    calls: tuple[str, ...] | None = None,
) -> ServedModel:
    manifest = SimpleNamespace(
        internal=internal,
        compiled_batch_sizes=sizes,
        batched=bool(sizes),
    )
    bundle = SimpleNamespace(name="m", manifest=manifest, idempotent=idempotent)
    return ServedModel(
        bundle=cast(Any, bundle),
        hooks=None,
        client_inputs={spec.name: spec for spec in inputs},
        client_outputs={},
        executable_inputs=inputs,
        executable_outputs=(),
        sizes=sizes or (1,),
        variants=(),
        output_shapes={},
        weight_bytes=12 if calls is None else 0,
        meta=calls is not None,
        calls=calls or (),
    )


@final
@dataclass
class Worker:
    """A servicer over a catalog, and the weights it put in force."""

    catalog: Catalog
    mode: str = "explicit"
    settings: ModelSchedulingConfig = field(default_factory=ModelSchedulingConfig)
    device: FakeDevice | None = field(default_factory=FakeDevice)
    weights: list[tuple[str, float]] = field(default_factory=list)
    budget: int = 0

    def __post_init__(self) -> None:
        self.policies = ModelPolicies(SchedulerConfig(models={"m": self.settings}))
        self.servicer = ControlServicer(
            terms=WorkerTerms("w3", self.mode, "edf", "GPU-7", 7, self.budget),
            catalog=self.catalog,
            policies=self.policies,
            set_weight=lambda *told: self.weights.append(told),
            totals=lambda _: EngineStatistics(0, 3, 4, 5, 0.25),
            queued=lambda _: 6,
            device=lambda: cast(Any, self.device),
        )

    async def status(self) -> pb.ModelControlStatusResponse:
        return await self.servicer.ModelControlStatus(pb.ModelControlStatusRequest(), CONTEXT)

    async def model(self) -> pb.ModelControl:
        (model,) = (await self.status()).models
        return model

    async def set_weight(self, model: str, weight: float) -> None:
        await self.servicer.SetModelPolicy(pb.SetModelPolicyRequest(model=model, weight=weight), CONTEXT)

    async def set_residency(self, model: str, residency: str) -> None:
        request = pb.SetModelResidencyRequest(model=model, residency=residency)
        await self.servicer.SetModelResidency(request, CONTEXT)

    async def compact(self) -> pb.CompactMemoryResponse:
        return await self.servicer.CompactMemory(pb.CompactMemoryRequest(), CONTEXT)


def holding(model: ServedModel) -> Catalog:
    catalog = Catalog()
    catalog.ready(catalog.begin("m"), model)
    return catalog


def plain() -> Catalog:
    return holding(served(tensor("x", "n", -1), sizes=(1, 8)))


def failed() -> Catalog:
    catalog = Catalog()
    catalog.failed(catalog.begin("m"), "no programs")
    return catalog


@async_test
async def test_every_field_of_a_loaded_model() -> None:
    fixed, batched = tensor("mask", "a", 3), tensor("x", "an", 3, -1)
    worker = Worker(
        holding(served(fixed, batched, sizes=(1, 8), idempotent=False)),
        settings=ModelSchedulingConfig(weight=2.5, residency="device", max_queue_delay_ms=1.5),
        device=FakeDevice("cuda"),
    )

    assert await worker.status() == pb.ModelControlStatusResponse(
        worker="w3",
        control_mode="explicit",
        discipline="edf",
        gpu="GPU-7",
        max_concurrent_requests=7,
        models=[
            pb.ModelControl(
                name="m",
                version="1",
                state="READY",
                residency="device",
                device_resident=True,
                weight_bytes=12,
                weight=2.5,
                queue_depth=6,
                compute_seconds=0.25,
                requests_served=4,
                dispatches=3,
                rows_served=5,
                max_batch_size=8,
                batch_input="x",
                batch_axis=1,
                max_queue_delay_ms=1.5,
            )
        ],
    )


@pytest.mark.parametrize(
    ("budget", "device", "told"),
    [
        (0, FakeDevice("cuda", limit=80), 80),
        (50, FakeDevice("cuda", limit=80), 50),
        (50, None, 50),
        (0, FakeDevice(), 0),
        (0, None, 0),
    ],
)
@async_test
async def test_the_budget_that_was_set_else_what_the_device_has(
    budget: int, device: FakeDevice | None, told: int
) -> None:
    worker = Worker(plain(), device=device, budget=budget)

    assert (await worker.status()).weight_budget_bytes == told


@pytest.mark.parametrize(("cap", "effective"), [(None, 8), (5, 5), (100, 8)])
@async_test
async def test_the_smaller_of_cap_and_largest_compiled_size(cap: int | None, effective: int) -> None:
    worker = Worker(plain(), settings=ModelSchedulingConfig(max_batch_size=cap))

    assert (await worker.model()).max_batch_size == effective


@async_test
async def test_without_a_batch_axis_a_cap_means_nothing() -> None:
    worker = Worker(holding(served(tensor("x", "a", 3))), settings=ModelSchedulingConfig(max_batch_size=5))
    model = await worker.model()

    assert (model.max_batch_size, model.batch_input, model.batch_axis) == (0, "", 0)


@async_test
async def test_a_failed_model_and_one_that_is_none_of_the_clients_business() -> None:
    catalog = holding(served(tensor("x", "n", -1), sizes=(1,), internal=True))
    catalog.failed(catalog.begin("broken"), "no programs")

    model = await Worker(catalog).model()

    assert (model.name, model.state, model.reason) == ("broken", "UNAVAILABLE", "no programs")
    assert (model.residency, model.device_resident, model.host_resident) == ("system", False, False)


@pytest.mark.parametrize(("kind", "on_host"), [("cpu", True), ("cuda", False)])
@async_test
async def test_where_the_weights_are_is_no_matter_of_the_floor(kind: str, on_host: bool) -> None:
    worker = Worker(plain(), device=FakeDevice(kind))
    for floor in ("unpinned", "system", "device"):
        await worker.set_residency("m", floor)
        model = await worker.model()

        assert (model.residency, model.host_resident, model.device_resident) == (floor, on_host, True)


@async_test
async def test_a_meta_has_calls_and_neither_weight_nor_floor() -> None:
    worker = Worker(holding(served(tensor("x", "k", 3), calls=("a", "b"))))
    model = await worker.model()

    assert (list(model.calls), model.weight, model.residency) == (["a", "b"], 0.0, "")
    for attempt in (worker.set_weight("m", 2.0), worker.set_residency("m", "device")):
        with pytest.raises(Refused, match="FAILED_PRECONDITION: model 'm' is a meta model"):
            await attempt


@async_test
async def test_a_meta_weighs_what_it_calls() -> None:
    catalog = holding(served(tensor("x", "k", 3), calls=("a", "b")))
    catalog.ready(catalog.begin("a"), served(internal=True))
    model = await Worker(catalog).model()
    assert (model.weight_bytes, model.device_resident, model.host_resident) == (12, False, False)

    catalog.ready(catalog.begin("b"), served(internal=True))
    model = await Worker(catalog).model()
    assert (model.weight_bytes, model.device_resident, model.host_resident) == (24, True, True)


@async_test
async def test_a_weight_is_put_in_force() -> None:
    worker = Worker(plain())
    for weight in (1e-9, 1e6):
        await worker.set_weight("m", weight)

    assert worker.weights == [("m", 1e-9), ("m", 1e6)]


@pytest.mark.parametrize("weight", [0.0, -1.0, 1.000001e6, float("inf"), float("nan")])
@async_test
async def test_a_weight_out_of_range(weight: float) -> None:
    worker = Worker(plain())

    with pytest.raises(
        Refused, match=r"INVALID_ARGUMENT: model 'm': weight is .*more than 0 and at most 1e\+06"
    ):
        await worker.set_weight("m", weight)
    assert worker.weights == []


@async_test
async def test_an_unknown_model_and_an_internal_one_are_not_found() -> None:
    for worker in (Worker(Catalog()), Worker(holding(served(internal=True)))):
        for attempt in (worker.set_weight("m", 2.0), worker.set_residency("m", "system")):
            with pytest.raises(Refused, match="NOT_FOUND: model 'm' is not found"):
                await attempt


@pytest.mark.parametrize("mode", ["dynamic", "static"])
@async_test
async def test_residency_is_set_in_explicit_mode_only(mode: str) -> None:
    worker = Worker(plain(), mode=mode)

    with pytest.raises(Refused, match=f"UNAVAILABLE: model_control_mode is {mode}; residency is set"):
        await worker.set_residency("m", "system")
    assert (await worker.model()).residency == "system"


@async_test
async def test_an_unknown_floor() -> None:
    with pytest.raises(Refused, match=r"INVALID_ARGUMENT: .*'gpu'; accepted are unpinned, system, device"):
        await Worker(plain()).set_residency("m", "gpu")


@async_test
async def test_weights_stay_on_the_device_only_once_they_are_on_the_host() -> None:
    worker = Worker(failed())

    with pytest.raises(Refused, match=r"FAILED_PRECONDITION: .*no programs; .*on the host"):
        await worker.set_residency("m", "device")
    assert (await worker.model()).residency == "system"
    await worker.set_residency("m", "unpinned")
    assert (await worker.model()).residency == "unpinned"


@async_test
async def test_compaction_says_what_it_did() -> None:
    on_cpu = await Worker(plain()).compact()
    assert "host memory" in on_cpu.summary
    assert (on_cpu.moved_bytes, on_cpu.bytes_in_use_before, on_cpu.largest_free_block_after) == (0, 0, 0)

    on_gpu = await Worker(plain(), device=FakeDevice("cuda", used=5, largest=3)).compact()
    assert "nothing moved" in on_gpu.summary
    assert (on_gpu.bytes_in_use_before, on_gpu.bytes_in_use_after) == (5, 5)
    assert (on_gpu.largest_free_block_before, on_gpu.largest_free_block_after) == (3, 3)

    with pytest.raises(Refused, match="UNAVAILABLE: the device is not there yet"):
        await Worker(plain(), device=None).compact()


def test_the_terms_of_a_version_are_the_policies_of_its_name() -> None:
    settings = ModelSchedulingConfig(weight=2.5, max_batch_size=4, max_queue_delay_ms=1.5)
    policies = ModelPolicies(SchedulerConfig(models={"m": settings}))
    model = served(tensor("x", "n", -1), sizes=(1, 8))

    assert policies.terms(model) == ModelTerms(
        sizes=(1, 8), coalesces=True, max_batch_size=4, weight=2.5, max_queue_delay_seconds=0.0015
    )
    policies.set_weight("m", 7.0)
    assert policies.terms(model).weight == 7.0
    assert policies.weight("other") == 1.0
