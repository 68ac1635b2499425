"""ModelInfer: from a decoded message to a response, with every stop a request makes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.clock import Clock
from reactant_core.errors import DeadlineExceeded, InternalError, ResourceExhausted, ServingError
from reactant_core.logs import get_logger
from reactant_proto import inference_pb2 as pb
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.port import Arrays, Completed, Submission
from reactant_worker.metrics import WorkerMetrics
from reactant_worker.models.catalog import Catalog, Entry
from reactant_worker.models.hooks import HookRequest
from reactant_worker.models.served import ServedModel
from reactant_worker.pool import WorkPool
from reactant_worker.rpc.admission import Admission
from reactant_worker.rpc.decode import BatchRows, batch_rows, check_batch, decode_inputs
from reactant_worker.rpc.encode import check_output, encode_response, requested_outputs
from reactant_worker.rpc.parameters import RequestParameters, parse_parameters
from reactant_worker.rpc.regions import Regions

_log = get_logger(__name__)


@final
@dataclass(frozen=True, slots=True)
class _Call:
    entry: Entry
    model: ServedModel
    request: pb.ModelInferRequest
    started: float


@final
class InferPath:
    """Serves ModelInfer requests on the event loop; hooks run on `hook_pool`."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        admission: Admission,
        bridge: EngineBridge,
        hook_pool: WorkPool,
        metrics: WorkerMetrics,
        clock: Clock,
        regions: Regions,
        max_response_bytes: int,
    ) -> None:
        self._catalog = catalog
        self._admission = admission
        self._bridge = bridge
        self._hook_pool = hook_pool
        self._metrics = metrics
        self._clock = clock
        self._regions = regions
        self._max_response_bytes = max_response_bytes

    async def infer(
        self, request: pb.ModelInferRequest, seconds_remaining: float | None
    ) -> pb.ModelInferResponse:
        """Answers one request; raises `ServingError`, or CancelledError when the client left.

        Args:
            request: the message.
            seconds_remaining: until the gRPC deadline, None without one.
        """
        started = self._clock.monotonic()
        self._admission.enter()
        try:
            entry = self._catalog.find(request.model_name, request.model_version)
            model = entry.ready_model()
            self._admission.check_queue(entry, model)
            entry.hold(model)
            try:
                return await self._within_deadline(_Call(entry, model, request, started), seconds_remaining)
            finally:
                entry.release(model)
        finally:
            self._admission.leave()

    async def _within_deadline(self, call: _Call, remaining: float | None) -> pb.ModelInferResponse:
        parameters = parse_parameters(call.model.name, call.request.parameters)
        timeout = parameters.timeout_seconds
        if timeout is None or (remaining is not None and remaining < timeout):
            timeout = remaining
        if timeout is None:
            return await self._run(call, parameters, None)
        try:
            async with asyncio.timeout(timeout):
                return await self._run(call, parameters, call.started + timeout)
        except TimeoutError:
            raise DeadlineExceeded(f"model '{call.model.name}': the deadline passed") from None

    async def _run(
        self, call: _Call, parameters: RequestParameters, deadline: float | None
    ) -> pb.ModelInferResponse:
        entry, model, request = call.entry, call.model, call.request
        hooks = model.hooks
        wanted = requested_outputs(model.name, request, model.client_outputs, self._regions)
        tensors: Mapping[str, Any] = decode_inputs(model.name, request, model.client_inputs, self._regions)
        details = HookRequest(request.id, parameters.custom, parameters.priority, deadline)
        client_batch: BatchRows | None = None
        hooked = hooks is not None and hooks.preprocess is not None
        if hooks is not None and hooked:
            client_batch = batch_rows(model.name, ((s, tensors[n]) for n, s in model.client_inputs.items()))
            entry.preparing += 1
            try:
                returned = await self._hook_pool.run(hooks.run, "preprocess", tensors, details, tag=model.key)
            finally:
                entry.preparing -= 1
            tensors = _checked(model, "preprocess", returned, model.executable_inputs)
        inputs: Arrays = tuple(tensors[spec.name] for spec in model.executable_inputs)
        batch = batch_rows(model.name, zip(model.executable_inputs, inputs, strict=True))
        check_batch(model.name, batch, client_batch, model.sizes, pads=model.pads)
        rows = 1 if batch is None else batch.rows
        variant = model.variant_of(inputs)
        completed: Completed | None = None
        if rows:
            queued = Submission(model.key, inputs, rows, variant, self._clock.monotonic(), deadline)
            try:
                completed = await self._bridge.run(queued)
            except ServingError as error:
                # The engine knows neither the model's name nor whether a hook has run.
                raise type(error)(
                    f"model '{model.name}': {error.message}", not_started=error.not_started and not hooked
                ) from None
            outputs = completed.outputs
        else:
            outputs = _empty_outputs(model, variant)
        answer: Mapping[str, Any] = {
            spec.name: array for spec, array in zip(model.executable_outputs, outputs, strict=True)
        }
        if hooks is not None and hooks.postprocess is not None:
            returned = await self._hook_pool.run(hooks.run, "postprocess", answer, details)
            answer = _checked(model, "postprocess", returned, tuple(model.client_outputs.values()))
        response = encode_response(model.name, request.id, [(w, answer[w.spec.name]) for w in wanted])
        # Checked here too, not by the transport alone: what the client sees is what is counted.
        size = response.ByteSize()
        if size > self._max_response_bytes:
            raise ResourceExhausted(
                f"model '{model.name}': the response has {size} bytes, "
                f"the limit is {self._max_response_bytes}"
            )
        entry.counters.succeeded(self._clock.monotonic() - call.started, rows, completed, time.time())
        if completed is not None:
            self._metrics.waited(model.name, completed.queue_seconds)
        return response


def _checked(
    model: ServedModel, stage: str, returned: Mapping[str, Any], specs: tuple[TensorSpec, ...]
) -> dict[str, NDArray[Any]]:
    names = {spec.name for spec in specs}
    origin = f"model '{model.name}': {stage}"
    try:
        if returned.keys() != names:
            given, expected = ", ".join(sorted(returned)) or "nothing", ", ".join(sorted(names))
            raise InternalError(f"{origin} returned {given}; expected {expected}")
        return {spec.name: check_output(origin, spec, returned[spec.name]) for spec in specs}
    except InternalError as error:
        # The client is told, but it is the bundle's author who has to see it.
        _log.error("hook returned what it must not", model=model.name, hook=stage, reason=error.message)
        raise


def _empty_outputs(model: ServedModel, variant: int | None) -> Arrays:
    return tuple(
        np.zeros(
            tuple(0 if axis == spec.batch_axis else size for axis, size in enumerate(shape)),
            spec.dtype.numpy,
        )
        for spec, shape in zip(model.executable_outputs, model.output_shapes[variant], strict=True)
    )
