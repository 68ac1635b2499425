"""One look at a worker: is it ready, and what does it serve?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import grpc
import grpc.aio

from reactant_core.errors import clip
from reactant_gateway.workers.dial import dial
from reactant_gateway.workers.handle import WorkerHandle
from reactant_gateway.workers.models import ModelReader
from reactant_policy.routing.health import Outcome
from reactant_policy.routing.table import ModelView
from reactant_proto import control_pb2, inference_pb2

SAYS_NOT_READY: Final = "it says that it is not ready"
"""The reason of a worker that answers and is not ready, such as one that compiles its models."""

_UNIMPLEMENTED: Final = grpc.StatusCode.UNIMPLEMENTED

Entries = Sequence[inference_pb2.RepositoryIndexResponse.ModelIndex]


@final
@dataclass(frozen=True, slots=True)
class Probe:
    """What a look at a worker gave.

    Attributes:
        outcome: whether it may get requests.
        reason: why not; empty when it may.
        models: what it serves; None when it did not say.
        discipline: as in `WorkerView`; None when it did not say.
        weight_budget_bytes: as in `WorkerView`, of no meaning without a discipline.
    """

    outcome: Outcome
    reason: str = ""
    models: Mapping[str, ModelView] | None = None
    discipline: str | None = None
    weight_budget_bytes: int = 0


async def probe(handle: WorkerHandle, reader: ModelReader, timeout_seconds: float) -> Probe:
    """Looks at a worker: ServerReady, then RepositoryIndex and ModelControlStatus, a timeout for each.

    One that is in service keeps its models when only they cannot be read. One that is out must show them
    before it comes back; without a connection it is asked nothing until something listens at its address,
    so that the channel's own waits between attempts never add up.
    """
    in_service = handle.ready
    if not in_service and handle.channel.get_state() is not grpc.ChannelConnectivity.READY:
        fault = await _dial(handle.endpoint.address, timeout_seconds)
        if fault is not None:
            return fault
    try:
        answer = await handle.inference.ServerReady(
            inference_pb2.ServerReadyRequest(), timeout=timeout_seconds, wait_for_ready=not in_service
        )
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            fault = await _dial(handle.endpoint.address, timeout_seconds)
            if fault is not None and fault.outcome is Outcome.REFUSED:
                return fault
        return Probe(Outcome.FAILED, _text("ServerReady", error))
    index, control = await asyncio.gather(
        _index(handle, timeout_seconds), _control(handle, timeout_seconds, in_service)
    )
    if isinstance(index, str):
        found = Probe(Outcome.READY if in_service else Outcome.FAILED, "" if in_service else index)
    else:
        models = reader.read(index, None if control is None else control.models, handle.view.models)
        found = Probe(Outcome.READY, models=models)
    if control is not None:
        discipline = clip(control.discipline)
        found = replace(found, discipline=discipline, weight_budget_bytes=control.weight_budget_bytes)
    if not answer.ready:
        return replace(found, outcome=Outcome.NOT_READY, reason=SAYS_NOT_READY)
    return found


async def _dial(address: str, timeout_seconds: float) -> Probe | None:
    try:
        async with asyncio.timeout(timeout_seconds):
            await dial(address)
    except ConnectionError as error:
        return Probe(Outcome.REFUSED, f"{address}: {(error.strerror or str(error)).lower()}")
    except TimeoutError:
        return Probe(Outcome.FAILED, f"{address}: no connection within {timeout_seconds:g} s")
    except OSError as error:
        return Probe(Outcome.FAILED, f"{address}: {(error.strerror or str(error)).lower()}")
    return None


async def _index(handle: WorkerHandle, timeout_seconds: float) -> Entries | str:
    """The entries, or why there are none."""
    request = inference_pb2.RepositoryIndexRequest()
    try:
        answer = await handle.inference.RepositoryIndex(request, timeout=timeout_seconds)
    except grpc.aio.AioRpcError as error:
        return [] if error.code() is _UNIMPLEMENTED else _text("RepositoryIndex", error)
    return answer.models


async def _control(
    handle: WorkerHandle, timeout_seconds: float, in_service: bool
) -> control_pb2.ModelControlStatusResponse | None:
    """The models' properties, none from another KServe server; None: those known so far hold on."""
    request = control_pb2.ModelControlStatusRequest()
    try:
        answer = await handle.control.ModelControlStatus(request, timeout=timeout_seconds)
    except grpc.aio.AioRpcError as error:
        if in_service and error.code() is not _UNIMPLEMENTED:
            return None
        # A worker that comes back may be another build: nothing known of the last one is presumed.
        return control_pb2.ModelControlStatusResponse()
    handle.gpu = answer.gpu
    return answer


def _text(rpc: str, error: grpc.aio.AioRpcError) -> str:
    return clip(f"{rpc}: {error.code().name}: {error.details()}")
