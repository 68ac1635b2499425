"""The KServe V2 servicer of the gateway: all of the surface but the two inference calls."""

# ruff: noqa: N802 - the names are the protocol's

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version
from typing import Any, Final, final

import grpc

from reactant_core.errors import (
    DeadlineExceeded,
    ModelNotFound,
    ModelUnavailable,
    Unimplemented,
)
from reactant_core.kserve.logsettings import LogSettings
from reactant_core.kserve.shm import same_ipc_namespace
from reactant_core.kserve.surface import (
    EXTENSIONS,
    NO_CUDA_SHARED_MEMORY,
    SERVER_NAME,
    trace_settings,
    unknown_model,
)
from reactant_core.rpc.servicer import Context, answers, seconds_remaining
from reactant_gateway.local.combine import merge_index, sum_statistics
from reactant_gateway.local.fanout import (
    PATIENCE_SECONDS,
    Answers,
    ask_all,
    ask_first,
    combined,
    most_telling,
)
from reactant_gateway.local.fleet import Fleet
from reactant_gateway.local.regions import RegionBook
from reactant_gateway.router import Router
from reactant_gateway.workers.handle import WorkerHandle
from reactant_proto import inference_pb2 as pb
from reactant_proto import inference_pb2_grpc

_READ_SECONDS: Final = 10.0
_NO_WORKER: Final = "no worker is ready"
_ELSEWHERE: Final = "inference requests are forwarded; they are not answered on this socket"
_NO_RESPONSES: Final[tuple[pb.ModelStreamInferResponse, ...]] = ()


def _read_seconds(context: Context) -> float:
    remaining = seconds_remaining(context)
    return _READ_SECONDS if remaining is None else min(remaining, _READ_SECONDS)


@final
class InferenceServicer(inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers as a worker does, for all of them."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        router: Router,
        regions: RegionBook,
        log_settings: LogSettings,
        ready: Callable[[], bool],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._fleet = fleet
        self._router = router
        self._regions = regions
        self._log_settings = log_settings
        self._ready = ready
        self._patience = patience
        self._version = version("reactant-gateway")

    @answers
    async def ServerLive(self, request: pb.ServerLiveRequest, context: Context) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    @answers
    async def ServerReady(self, request: pb.ServerReadyRequest, context: Context) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._ready())

    @answers
    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, context: Context
    ) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name=SERVER_NAME, version=self._version, extensions=EXTENSIONS)

    @answers
    async def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> pb.ModelReadyResponse:
        holders = await self._holders(request.name, context)
        workers = [worker for worker in holders if worker.ready]
        if not workers:
            return pb.ModelReadyResponse(ready=False)
        told = await self._read_all(
            workers, "ModelReady", request, context, enough=lambda response: response.ready
        )
        if not told.good:
            raise most_telling(told.failed.values())
        ready = any(response.ready for response in told.good.values())
        route = self._router.find(request.name)
        if ready and not (route and route.candidates):
            await self._refresh(context)  # what is said to be ready can be used at once
        return pb.ModelReadyResponse(ready=ready)

    @answers
    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: Context
    ) -> pb.ModelMetadataResponse:
        response: pb.ModelMetadataResponse = await self._of_a_replica("ModelMetadata", request, context)
        return response

    @answers
    async def ModelConfig(self, request: pb.ModelConfigRequest, context: Context) -> pb.ModelConfigResponse:
        response: pb.ModelConfigResponse = await self._of_a_replica("ModelConfig", request, context)
        return response

    @answers
    async def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, context: Context
    ) -> pb.ModelStatisticsResponse:
        workers: Sequence[WorkerHandle] = self._fleet.handles
        if request.name:
            workers = await self._holders(request.name, context)
        told = await self._read_all(workers, "ModelStatistics", request, context)
        if not told.good:
            ready = {worker.name for worker in workers if worker.ready}
            theirs = [error for worker, error in told.failed.items() if worker in ready]
            raise most_telling(theirs or told.failed.values())
        return sum_statistics(told.good.values())

    @answers
    async def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, context: Context
    ) -> pb.RepositoryIndexResponse:
        everything = pb.RepositoryIndexRequest(repository_name=request.repository_name)
        workers = self._fleet.handles
        told = await self._read_all(workers, "RepositoryIndex", everything, context)
        if not told.good:
            raise combined(told.failed, len(workers)) if workers else ModelUnavailable(_NO_WORKER)
        silent = {worker.name: worker.view.models for worker in workers if worker.name in told.failed}
        return merge_index(told.good, silent, ready_only=request.ready)

    @answers
    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: Context
    ) -> pb.RepositoryModelLoadResponse:
        told = await self._change_all("RepositoryModelLoad", request, context)
        if told.failed:
            raise combined(told.failed, len(told.failed) + len(told.good))
        return pb.RepositoryModelLoadResponse()

    @answers
    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: Context
    ) -> pb.RepositoryModelUnloadResponse:
        told = await self._change_all("RepositoryModelUnload", request, context)
        asked = len(told.failed) + len(told.good)
        # Gone is gone, as long as somebody had it.
        failed = {
            worker: error
            for worker, error in told.failed.items()
            if not (told.good and isinstance(error, ModelNotFound))
        }
        if failed:
            raise combined(failed, asked)
        return pb.RepositoryModelUnloadResponse()

    @answers
    async def SystemSharedMemoryStatus(
        self, request: pb.SystemSharedMemoryStatusRequest, context: Context
    ) -> pb.SystemSharedMemoryStatusResponse:
        regions = [self._regions.get(request.name)] if request.name else self._regions
        response = pb.SystemSharedMemoryStatusResponse()
        for region in regions:
            status = response.regions[region.name]
            status.name, status.key = region.name, region.key
            status.offset, status.byte_size = region.offset, region.size
        return response

    @answers
    async def SystemSharedMemoryRegister(
        self, request: pb.SystemSharedMemoryRegisterRequest, context: Context
    ) -> pb.SystemSharedMemoryRegisterResponse:
        await self._regions.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    @answers
    async def SystemSharedMemoryUnregister(
        self, request: pb.SystemSharedMemoryUnregisterRequest, context: Context
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        await self._regions.unregister(request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    @answers
    async def CudaSharedMemoryStatus(
        self, request: pb.CudaSharedMemoryStatusRequest, context: Context
    ) -> pb.CudaSharedMemoryStatusResponse:
        return pb.CudaSharedMemoryStatusResponse()

    @answers
    async def CudaSharedMemoryRegister(
        self, request: pb.CudaSharedMemoryRegisterRequest, context: Context
    ) -> pb.CudaSharedMemoryRegisterResponse:
        raise Unimplemented(NO_CUDA_SHARED_MEMORY)

    @answers
    async def CudaSharedMemoryUnregister(
        self, request: pb.CudaSharedMemoryUnregisterRequest, context: Context
    ) -> pb.CudaSharedMemoryUnregisterResponse:
        raise Unimplemented(NO_CUDA_SHARED_MEMORY)

    @answers
    async def TraceSetting(
        self, request: pb.TraceSettingRequest, context: Context
    ) -> pb.TraceSettingResponse:
        return trace_settings(request)

    @answers
    async def LogSettings(self, request: pb.LogSettingsRequest, context: Context) -> pb.LogSettingsResponse:
        response = self._log_settings.apply(request.settings)
        workers = self._fleet.ready_handles()
        if request.settings and workers:
            told = await self._read_all(workers, "LogSettings", request, context)
            if told.failed:
                raise combined(told.failed, len(workers))
        return response

    @answers
    async def IsSameIPCNamespace(
        self, request: pb.IsSameIPCNamespaceRequest, context: Context
    ) -> pb.IsSameIPCNamespaceResponse:
        return pb.IsSameIPCNamespaceResponse(same=same_ipc_namespace(request.name))

    @answers
    async def ModelInfer(self, request: pb.ModelInferRequest, context: Context) -> pb.ModelInferResponse:
        raise Unimplemented(_ELSEWHERE)

    async def ModelStreamInfer(
        self, request_iterator: AsyncIterator[pb.ModelInferRequest], context: Context
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        for response in _NO_RESPONSES:  # makes it a generator
            yield response
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, _ELSEWHERE)

    async def _holders(self, name: str, context: Context) -> Sequence[WorkerHandle]:
        """The workers to ask about a model: the ready ones that have it, or else those that had it last.

        Raises ModelNotFound for a name that, after one look, no worker has.
        """
        if self._router.find(name) is None:
            await self._refresh(context)
        if self._router.find(name) is None:
            if not self._fleet.ready_handles():
                raise ModelUnavailable(_NO_WORKER, not_started=True)
            raise unknown_model(name)
        holders = [worker for worker in self._fleet.handles if name in worker.view.models]
        return [worker for worker in holders if worker.ready] or holders

    async def _of_a_replica(self, rpc: str, request: Any, context: Context) -> Any:
        """The answer of a worker that has the model READY; of any that has it, where it is READY nowhere."""
        workers = await self._holders(request.name, context)
        route = self._router.find(request.name)
        candidates = route.candidates if route else ()
        replicas = [worker for worker in workers if worker.name in candidates] or workers
        return await ask_first(
            replicas, rpc, request, seconds=_read_seconds(context), patience=self._patience
        )

    async def _read_all(
        self,
        workers: Sequence[WorkerHandle],
        rpc: str,
        request: Any,
        context: Context,
        *,
        enough: Callable[[Any], bool] = lambda _: False,
    ) -> Answers:
        seconds = _read_seconds(context)
        return await ask_all(workers, rpc, request, seconds=seconds, patience=self._patience, enough=enough)

    async def _change_all(self, rpc: str, request: Any, context: Context) -> Answers:
        """Asks all ready workers, then has the routing table follow: what was loaded can be used at once."""
        workers = self._fleet.ready_handles()
        if not workers:
            raise ModelUnavailable(_NO_WORKER, not_started=True)
        told = await ask_all(workers, rpc, request, seconds=seconds_remaining(context))
        await self._fleet.refresh(force=True)
        return told

    async def _refresh(self, context: Context) -> None:
        try:
            async with asyncio.timeout(_read_seconds(context)):
                await self._fleet.refresh()
        except TimeoutError:
            raise DeadlineExceeded("the workers did not answer in time") from None
