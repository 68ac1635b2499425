"""ControlService: what operators and the other processes of the node ask of a worker's models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast, final, get_args

from reactant_core.config.sections import MAX_WEIGHT, Residency
from reactant_core.errors import FailedPrecondition, InvalidArgument, ModelUnavailable
from reactant_core.logs import get_logger
from reactant_core.rpc.servicer import Context, answers
from reactant_proto import control_pb2 as pb
from reactant_proto import control_pb2_grpc
from reactant_worker.device import Device
from reactant_worker.engine.port import EngineStatistics
from reactant_worker.models.catalog import VERSION, Catalog, Entry
from reactant_worker.models.policies import ModelPolicies
from reactant_worker.models.served import ServedModel
from reactant_worker.rpc.explicit import require_explicit

_log = get_logger(__name__)

_RESIDENCIES = get_args(Residency)


@final
@dataclass(frozen=True, slots=True)
class WorkerTerms:
    """What holds for the worker as a whole.

    Attributes:
        name: its configured name.
        control_mode: `dynamic`, `static` or `explicit`.
        discipline: the scheduling discipline at work.
        gpu: the device selector it was started with; empty on a CPU.
        max_concurrent_requests: cap on requests in flight; 0: none.
        weight_budget_bytes: device memory for weights; 0: what the device has.
    """

    name: str
    control_mode: str
    discipline: str
    gpu: str
    max_concurrent_requests: int
    weight_budget_bytes: int = 0


@final
class ControlServicer(control_pb2_grpc.ControlServiceServicer):
    """Answers from the moment the port is open.

    Args:
        policies: what holds for each model by name.
        set_weight: puts a model's weight in force.
        totals: engine counters of a model over all its versions.
        queued: requests of a model that wait.
        device: the device, None until it is there.
    """

    def __init__(
        self,
        *,
        terms: WorkerTerms,
        catalog: Catalog,
        policies: ModelPolicies,
        set_weight: Callable[[str, float], None],
        totals: Callable[[Entry], EngineStatistics],
        queued: Callable[[Entry], int],
        device: Callable[[], Device | None],
    ) -> None:
        self._terms = terms
        self._catalog = catalog
        self._policies = policies
        self._set_weight = set_weight
        self._totals = totals
        self._queued = queued
        self._device = device

    @answers
    async def ModelControlStatus(  # noqa: N802
        self, request: pb.ModelControlStatusRequest, context: Context
    ) -> pb.ModelControlStatusResponse:
        terms, device = self._terms, self._device()
        return pb.ModelControlStatusResponse(
            worker=terms.name,
            control_mode=terms.control_mode,
            discipline=terms.discipline,
            gpu=terms.gpu,
            max_concurrent_requests=terms.max_concurrent_requests,
            weight_budget_bytes=terms.weight_budget_bytes
            or (device.memory_limit() if device is not None else 0),
            models=[self._model(entry) for entry in self._catalog.visible()],
        )

    @answers
    async def SetModelPolicy(  # noqa: N802
        self, request: pb.SetModelPolicyRequest, context: Context
    ) -> pb.SetModelPolicyResponse:
        entry = self._catalog.find(request.model)
        if not 0 < request.weight <= MAX_WEIGHT:
            raise InvalidArgument(
                f"model '{entry.name}': weight is {request.weight:g}; accepted is more than 0 and at most "
                f"{MAX_WEIGHT:g}"
            )
        if _is_meta(entry):
            raise FailedPrecondition(
                f"model '{entry.name}' is a meta model: the models it calls have weights, it has none"
            )
        self._set_weight(entry.name, request.weight)
        _log.info("weight set", model=entry.name, weight=request.weight)
        return pb.SetModelPolicyResponse()

    @answers
    async def SetModelResidency(  # noqa: N802
        self, request: pb.SetModelResidencyRequest, context: Context
    ) -> pb.SetModelResidencyResponse:
        require_explicit(self._terms.control_mode, "residency is set")
        entry = self._catalog.find(request.model)
        if request.residency not in _RESIDENCIES:
            raise InvalidArgument(
                f"model '{entry.name}': residency is '{request.residency}'; accepted are "
                f"{', '.join(_RESIDENCIES)}"
            )
        if _is_meta(entry):
            raise FailedPrecondition(f"model '{entry.name}' is a meta model: it has no weights of its own")
        if request.residency == "device" and entry.model is None:
            raise FailedPrecondition(
                f"{entry.describe()}; its weights must be on the host before they can stay on the device"
            )
        self._policies.set_residency(entry.name, cast(Residency, request.residency))
        _log.info("residency set", model=entry.name, residency=request.residency)
        return pb.SetModelResidencyResponse()

    @answers
    async def CompactMemory(  # noqa: N802
        self, request: pb.CompactMemoryRequest, context: Context
    ) -> pb.CompactMemoryResponse:
        device = self._device()
        if device is None:
            raise ModelUnavailable("the device is not there yet")
        used, largest_free = device.bytes_in_use(), device.largest_free_block()
        return pb.CompactMemoryResponse(
            bytes_in_use_before=used,
            bytes_in_use_after=used,
            largest_free_block_before=largest_free,
            largest_free_block_after=largest_free,
            summary="nothing to move: on the CPU weights are read where they lie in host memory"
            if device.kind == "cpu"
            else "nothing moved: this version keeps every weight set where it was first placed",
        )

    def _model(self, entry: Entry) -> pb.ModelControl:
        totals = self._totals(entry)
        message = pb.ModelControl(
            name=entry.name,
            version=VERSION,
            state=entry.state.value,
            reason=entry.reason,
            queue_depth=self._queued(entry),
            compute_seconds=totals.compute_seconds,
            requests_served=totals.requests,
            dispatches=totals.dispatches,
            rows_served=totals.rows,
        )
        if not _is_meta(entry):
            message.weight = self._policies.weight(entry.name)
            message.residency = self._policies.residency(entry.name)
            message.max_queue_delay_ms = self._policies.max_queue_delay_ms(entry.name)
        if entry.model is not None:
            self._fill_loaded(message, entry.model)
        return message

    def _fill_loaded(self, message: pb.ModelControl, model: ServedModel) -> None:
        device = self._device()
        message.weight_bytes = self._catalog.weight_bytes(model)
        # Nothing is evicted in this version. On the CPU the device's arrays are the host's; elsewhere
        # nothing of a weight set stays behind on the host.
        message.device_resident = all(self._is_loaded(name) for name in model.calls)
        message.host_resident = message.device_resident and device is not None and device.kind == "cpu"
        message.idempotent = model.bundle.idempotent
        message.calls.extend(model.calls)
        if model.bundle.manifest.compiled_batch_sizes:
            message.max_batch_size = self._policies.max_batch_size(model)
        for spec in model.client_inputs.values():
            if spec.batch_axis is not None:
                message.batch_input, message.batch_axis = spec.name, spec.batch_axis
                break

    def _is_loaded(self, name: str) -> bool:
        entry = self._catalog.get(name)
        return entry is not None and entry.model is not None


def _is_meta(entry: Entry) -> bool:
    return entry.model is not None and entry.model.meta
