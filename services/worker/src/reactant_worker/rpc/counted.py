"""Inference with every outcome counted as the client sees it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import final

import grpc

from reactant_core.clock import Clock
from reactant_core.errors import InternalError, ServingError, clip
from reactant_core.logs import get_logger
from reactant_proto import inference_pb2 as pb
from reactant_worker.metrics import NO_MODEL, WorkerMetrics
from reactant_worker.models.catalog import Catalog
from reactant_worker.rpc.infer import InferPath

_log = get_logger(__name__)
_levels = logging.getLogger(__name__)

_SHED = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: "full",
    grpc.StatusCode.UNAVAILABLE: "unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "deadline",
    grpc.StatusCode.CANCELLED: "cancelled",
}

_DEADLINE_TOLERANCE_SECONDS = 0.05
"""A client whose deadline passes resets the call; the reset can be here before our clock agrees."""


@final
class CountedInfer:
    """Wraps `InferPath` for unary calls and streams alike."""

    def __init__(self, *, infer: InferPath, catalog: Catalog, metrics: WorkerMetrics, clock: Clock) -> None:
        self._infer = infer
        self._catalog = catalog
        self._metrics = metrics
        self._clock = clock

    async def answer(
        self, request: pb.ModelInferRequest, seconds_remaining: Callable[[], float | None]
    ) -> pb.ModelInferResponse:
        """Answers one request; raises `ServingError`, or CancelledError when the client left.

        `seconds_remaining` gives the time to the call's deadline, None without one.
        """
        started = self._clock.monotonic()
        name, request_id = request.model_name, request.id
        try:
            response = await self._infer.infer(request, seconds_remaining())
        except ServingError as error:
            self.failed(name, request_id, error, started)
            raise
        except asyncio.CancelledError:
            self.left(name, request_id, seconds_remaining(), started)
            raise
        except Exception as error:
            failure = self.broke(name, request_id, error, started)
        else:
            self.succeeded(name, request_id, started)
            return response
        raise failure

    def succeeded(self, name: str, request_id: str, started: float) -> None:
        """Counts an answer without an error; `started` is when its request came, monotonic seconds."""
        self._count(name, request_id, grpc.StatusCode.OK, started, shed=False)

    def failed(self, name: str, request_id: str, failure: ServingError, started: float) -> None:
        """Counts a request that is answered with `failure`."""
        # A response over the size limit is RESOURCE_EXHAUSTED too, and was not shed.
        shed = failure.not_started or failure.code is not grpc.StatusCode.RESOURCE_EXHAUSTED
        self._count(name, request_id, failure.code, started, shed=shed)

    def broke(self, name: str, request_id: str, error: Exception, started: float) -> InternalError:
        """Logs and counts what nobody foresaw, from an `except`; returns what the client gets for it."""
        _log.exception("request failed", model=name, request=request_id)
        failure = InternalError(f"model '{name}': inference failed: {type(error).__name__}")
        self.failed(name, request_id, failure, started)
        return failure

    def left(self, name: str, request_id: str, remaining: float | None, started: float) -> None:
        """Counts a call that the transport ended; `remaining` is the time left to its deadline."""
        # It ends them for both reasons, and has answered or lost the client already.
        late = remaining is not None and remaining <= _DEADLINE_TOLERANCE_SECONDS
        code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
        self._count(name, request_id, code, started, shed=True)

    def _count(
        self, name: str, request_id: str, code: grpc.StatusCode, started: float, *, shed: bool
    ) -> None:
        seconds = self._clock.monotonic() - started
        entry = self._catalog.get(name)
        if entry is not None and entry.internal:
            entry = None  # to a client it does not exist
        self._metrics.answered(NO_MODEL if entry is None else entry.name, code.name, seconds)
        if shed and code in _SHED:
            self._metrics.shed(_SHED[code])
        if entry is not None and code is not grpc.StatusCode.OK:
            entry.counters.fail.add(seconds)
        if _levels.isEnabledFor(logging.DEBUG):
            _log.debug(
                "answered",
                model=clip(name),
                request=clip(request_id),
                code=code.name,
                seconds=round(seconds, 4),
            )
