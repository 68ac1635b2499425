"""ModelControlStatus where the conformance tests cannot reach: caps, failed and internal models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import grpc.aio
import pytest

from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_core.bundle.manifest import TensorSpec
from reactant_core.testing import async_test
from reactant_proto import control_pb2 as pb
from reactant_worker.engine.port import EngineStatistics
from reactant_worker.models.catalog import Catalog
from reactant_worker.models.served import ServedModel
from reactant_worker.rpc.control import ControlServicer, WorkerTerms

CONTEXT = cast("grpc.aio.ServicerContext[Any, Any]", None)


def tensor(name: str, axes: str, *dims: int) -> TensorSpec:
    return TensorSpec(name, BY_KSERVE["FP32"], axes, dims, axes.find("n") if "n" in axes else None)


def served(
    *inputs: TensorSpec, sizes: tuple[int, ...] = (), internal: bool = False, idempotent: bool = True
) -> ServedModel:
    manifest = SimpleNamespace(internal=internal, compiled_batch_sizes=sizes)
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
        weight_bytes=12,
    )


async def status(
    catalog: Catalog, *, max_batch_size: int | None = None, on_host: bool = True
) -> pb.ModelControlStatusResponse:
    terms = WorkerTerms("w3", "explicit", "fifo", "GPU-7", 7, lambda _: 2.5, lambda _: max_batch_size)
    servicer = ControlServicer(
        terms=terms,
        catalog=catalog,
        totals=lambda _: EngineStatistics(0, 3, 4, 5, 0.25),
        queued=lambda _: 6,
        weights_on_host=lambda: on_host,
    )
    return await servicer.ModelControlStatus(pb.ModelControlStatusRequest(), CONTEXT)


def holding(model: ServedModel) -> Catalog:
    catalog = Catalog()
    catalog.ready(catalog.begin("m"), model)
    return catalog


@async_test
async def test_every_field_of_a_loaded_model() -> None:
    fixed, batched = tensor("mask", "a", 3), tensor("x", "an", 3, -1)
    catalog = holding(served(fixed, batched, sizes=(1, 8), idempotent=False))

    assert await status(catalog, on_host=False) == pb.ModelControlStatusResponse(
        worker="w3",
        control_mode="explicit",
        discipline="fifo",
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
            )
        ],
    )


@pytest.mark.parametrize(("cap", "effective"), [(None, 8), (5, 5), (100, 8)])
@async_test
async def test_the_smaller_of_cap_and_largest_compiled_size(cap: int | None, effective: int) -> None:
    answer = await status(holding(served(tensor("x", "n", -1), sizes=(1, 8))), max_batch_size=cap)

    assert answer.models[0].max_batch_size == effective


@async_test
async def test_without_a_batch_axis_a_cap_means_nothing() -> None:
    (model,) = (await status(holding(served(tensor("x", "a", 3))), max_batch_size=5)).models

    assert (model.max_batch_size, model.batch_input, model.batch_axis) == (0, "", 0)


@async_test
async def test_a_failed_model_and_one_that_is_none_of_the_clients_business() -> None:
    catalog = holding(served(tensor("x", "n", -1), sizes=(1,), internal=True))
    catalog.failed(catalog.begin("broken"), "no programs")

    (model,) = (await status(catalog)).models

    assert (model.name, model.state, model.reason) == ("broken", "UNAVAILABLE", "no programs")
    assert (model.residency, model.device_resident, model.host_resident) == ("", False, False)
