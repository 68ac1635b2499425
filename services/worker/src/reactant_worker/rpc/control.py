"""ControlService: what other processes of the node ask a worker about its models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from reactant_core.rpc.servicer import Context, answers
from reactant_proto import control_pb2 as pb
from reactant_proto import control_pb2_grpc
from reactant_worker.engine.port import EngineStatistics
from reactant_worker.models.catalog import VERSION, Catalog, Entry
from reactant_worker.models.served import ServedModel


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
        weight: a model's share of device time relative to others, by name.
        max_batch_size: bound on coalesced rows that was set for a model, by name; None: not set.
    """

    name: str
    control_mode: str
    discipline: str
    gpu: str
    max_concurrent_requests: int
    weight: Callable[[str], float]
    max_batch_size: Callable[[str], int | None]


@final
class ControlServicer(control_pb2_grpc.ControlServiceServicer):
    """Answers from the moment the port is open."""

    def __init__(
        self,
        *,
        terms: WorkerTerms,
        catalog: Catalog,
        totals: Callable[[Entry], EngineStatistics],
        queued: Callable[[Entry], int],
        weights_on_host: Callable[[], bool],
    ) -> None:
        self._terms = terms
        self._catalog = catalog
        self._totals = totals
        self._queued = queued
        self._weights_on_host = weights_on_host

    @answers
    async def ModelControlStatus(  # noqa: N802
        self, request: pb.ModelControlStatusRequest, context: Context
    ) -> pb.ModelControlStatusResponse:
        terms = self._terms
        return pb.ModelControlStatusResponse(
            worker=terms.name,
            control_mode=terms.control_mode,
            discipline=terms.discipline,
            gpu=terms.gpu,
            max_concurrent_requests=terms.max_concurrent_requests,
            models=[self._model(entry) for entry in self._catalog.visible()],
        )

    def _model(self, entry: Entry) -> pb.ModelControl:
        totals = self._totals(entry)
        message = pb.ModelControl(
            name=entry.name,
            version=VERSION,
            state=entry.state.value,
            reason=entry.reason,
            weight=self._terms.weight(entry.name),
            queue_depth=self._queued(entry),
            compute_seconds=totals.compute_seconds,
            requests_served=totals.requests,
            dispatches=totals.dispatches,
            rows_served=totals.rows,
        )
        if entry.model is not None:
            self._fill_loaded(message, entry.model)
        return message

    def _fill_loaded(self, message: pb.ModelControl, model: ServedModel) -> None:
        # Nothing is evicted in this version: that is the floor at work, whatever was configured.
        message.residency = "device"
        message.device_resident = True
        message.host_resident = self._weights_on_host()
        message.weight_bytes = model.weight_bytes
        message.idempotent = model.bundle.idempotent
        if model.bundle.manifest.compiled_batch_sizes:
            message.max_batch_size = min(
                self._terms.max_batch_size(model.name) or model.largest, model.largest
            )
        for spec in model.client_inputs.values():
            if spec.batch_axis is not None:
                message.batch_input, message.batch_axis = spec.name, spec.batch_axis
                break
