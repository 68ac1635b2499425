"""ModelInfer: from a decoded message to a response, with every stop a request makes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from numpy.typing import NDArray

from reactant_core.clock import Clock
from reactant_core.errors import DeadlineExceeded, ResourceExhausted, ServingError
from reactant_proto import inference_pb2 as pb
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.port import Completed, Submission
from reactant_worker.metas.runner import MetaRunner
from reactant_worker.metrics import WorkerMetrics
from reactant_worker.models import steps
from reactant_worker.models.catalog import Catalog, Entry
from reactant_worker.models.hooks import HookRequest
from reactant_worker.models.served import ServedModel
from reactant_worker.models.tensors import BatchRows
from reactant_worker.pool import WorkPool
from reactant_worker.rpc.admission import Admission
from reactant_worker.rpc.decode import decode_inputs
from reactant_worker.rpc.encode import Wanted, encode_response, requested_outputs
from reactant_worker.rpc.parameters import RequestParameters, parse_parameters, soonest
from reactant_worker.rpc.regions import Regions


class _Call(NamedTuple):
    entry: Entry
    model: ServedModel
    request: pb.ModelInferRequest
    started: float


@final
class InferPath:
    """Serves ModelInfer requests on the event loop; hooks run on `hook_pool`, metas on their own threads."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        admission: Admission,
        bridge: EngineBridge,
        hook_pool: WorkPool,
        metas: MetaRunner,
        metrics: WorkerMetrics,
        clock: Clock,
        regions: Regions,
        max_response_bytes: int,
    ) -> None:
        self._catalog = catalog
        self._admission = admission
        self._bridge = bridge
        self._hook_pool = hook_pool
        self._metas = metas
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
                parameters = parse_parameters(model.name, request.parameters)
                timeout = soonest(parameters.timeout_seconds, seconds_remaining)
                call = _Call(entry, model, request, started)
                if timeout is None:
                    return await self._run(call, parameters, None)
                try:
                    async with asyncio.timeout(timeout):
                        return await self._run(call, parameters, call.started + timeout)
                except TimeoutError:
                    raise out_of_time(model.name) from None
            finally:
                entry.release(model)
        finally:
            self._admission.leave()

    async def _run(
        self, call: _Call, parameters: RequestParameters, deadline: float | None
    ) -> pb.ModelInferResponse:
        model, request = call.model, call.request
        wanted = requested_outputs(model.name, request, model.client_outputs, self._regions)
        tensors = decode_inputs(model.name, request, model.client_inputs, self._regions)
        details = HookRequest(request.id, parameters.custom, parameters.priority, deadline)
        if not model.meta:
            outputs, rows, completed = await self._execute(call, tensors, details)
            response = self._response(call, wanted, outputs)
            elapsed = self._clock.monotonic() - call.started
            count_success(call.entry, self._metrics, elapsed, rows, completed)
            return response
        async with self._metas.answer(model, tensors, details) as answer:
            response = self._response(call, wanted, answer.outputs)
        count_success(call.entry, self._metrics, self._clock.monotonic() - call.started, 1, None)
        call.entry.counters.queue.add(answer.queue_seconds)
        self._metrics.waited(model.name, answer.queue_seconds)
        return response

    async def _execute(
        self, call: _Call, tensors: Mapping[str, NDArray[Any]], details: HookRequest
    ) -> tuple[Mapping[str, NDArray[Any]], int, Completed | None]:
        """Client outputs, rows, and the execution, None when there were no rows."""
        entry, model = call.entry, call.model
        hooks = model.hooks
        client_batch: BatchRows | None = None
        hooked = hooks is not None and hooks.preprocess is not None
        if hooked:
            client_batch = steps.client_rows(model, tensors)
            entry.preparing += 1
            try:
                tensors = await self._hook_pool.run(steps.preprocess, model, tensors, details, tag=model.key)
            finally:
                entry.preparing -= 1
        prepared = steps.prepare(model, tensors, client_batch)
        completed: Completed | None = None
        if prepared.rows:
            queued = Submission(
                model.key,
                prepared.inputs,
                prepared.rows,
                prepared.variant,
                self._clock.monotonic(),
                details.deadline,
            )
            try:
                completed = await self._bridge.run(queued)
            except ServingError as error:
                raise of_model(model.name, error, begun=hooked) from None
            arrays = completed.outputs
        else:
            arrays = steps.empty_outputs(model, prepared.variant)
        outputs = steps.named_outputs(model, arrays)
        if hooks is not None and hooks.postprocess is not None:
            outputs = await self._hook_pool.run(steps.postprocess, model, outputs, details)
        return outputs, prepared.rows, completed

    def _response(
        self, call: _Call, wanted: Sequence[Wanted], outputs: Mapping[str, NDArray[Any]]
    ) -> pb.ModelInferResponse:
        name = call.model.name
        response = encode_response(name, call.request.id, [(w, outputs[w.spec.name]) for w in wanted])
        check_size(name, response.ByteSize(), self._max_response_bytes)
        return response


def check_size(model: str, size: int, limit: int) -> None:
    """Raises ResourceExhausted for a response over the limit; both are bytes."""
    # Checked here too, not by the transport alone: what the client sees is what is counted.
    if size > limit:
        raise ResourceExhausted(f"model '{model}': the response has {size} bytes, the limit is {limit}")


def out_of_time(model: str) -> DeadlineExceeded:
    """What a request gets whose deadline passes, wherever it is."""
    return DeadlineExceeded(f"model '{model}': the deadline passed")


def of_model(model: str, error: ServingError, *, begun: bool) -> ServingError:
    """An error of the engine, which knows neither the model's name nor whether a hook has run (`begun`)."""
    return type(error)(f"model '{model}': {error.message}", not_started=error.not_started and not begun)


def count_success(
    entry: Entry, metrics: WorkerMetrics, seconds: float, rows: int, completed: Completed | None
) -> None:
    """Counts an answer in what its model reports; `completed` is None when nothing had to run."""
    entry.counters.succeeded(seconds, rows, completed, time.time())
    if completed is not None:
        metrics.waited(entry.name, completed.queue_seconds)
