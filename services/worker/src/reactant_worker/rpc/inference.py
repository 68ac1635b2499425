"""The KServe V2 servicer: one method per RPC, errors through one table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from importlib.metadata import version
from typing import final

from reactant_core.bundle.errors import BundleError
from reactant_core.errors import (
    FailedPrecondition,
    InvalidArgument,
    ModelNotFound,
    Unimplemented,
)
from reactant_core.kserve.logsettings import LogSettings
from reactant_core.kserve.shm import same_ipc_namespace
from reactant_core.kserve.stream import STREAM_KEY, mark_final
from reactant_core.kserve.surface import (
    EXTENSIONS,
    NO_CUDA_SHARED_MEMORY,
    NOT_LOADED,
    SERVER_NAME,
    trace_settings,
)
from reactant_core.rpc.servicer import Context, answers, seconds_remaining
from reactant_proto import inference_pb2 as pb
from reactant_proto import inference_pb2_grpc
from reactant_worker.engine.port import EngineStatistics
from reactant_worker.models.catalog import VERSION, Catalog, Entry, ModelState
from reactant_worker.models.declared import declares_internal
from reactant_worker.models.loader import Loader
from reactant_worker.models.repository import Repository
from reactant_worker.models.together import load_together, unload_together
from reactant_worker.rpc import describe
from reactant_worker.rpc.counted import CountedInfer
from reactant_worker.rpc.explicit import require_explicit
from reactant_worker.rpc.regions import Regions
from reactant_worker.rpc.stream import answer_stream

_WHY_NOT_LOADED = {
    "dynamic": " yet: it has just appeared",
    "static": ": it came after the server's start",
    "explicit": "",
}


def _answers_a_stream(context: Context) -> bool:
    # A loop: `any` over a generator costs three times as much, for every request.
    for key, _ in context.invocation_metadata() or ():  # noqa: SIM110
        if key == STREAM_KEY:
            return True
    return False


@final
class InferenceServicer(inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers from the moment the port is open; what cannot be served yet says so."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        repository: Repository,
        infer: CountedInfer,
        regions: Regions,
        log_settings: LogSettings,
        ready: Callable[[], bool],
        totals: Callable[[Entry], EngineStatistics],
        loader: Loader,
        control_mode: str,
        device_kind: Callable[[], str],
    ) -> None:
        self._catalog = catalog
        self._repository = repository
        self._infer = infer
        self._regions = regions
        self._log_settings = log_settings
        self._ready = ready
        self._totals = totals
        self._loader = loader
        self._control_mode = control_mode
        self._device_kind = device_kind
        self._version = version("reactant-worker")

    @answers
    async def ServerLive(self, request: pb.ServerLiveRequest, context: Context) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    @answers
    async def ServerReady(self, request: pb.ServerReadyRequest, context: Context) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._ready())

    @answers
    async def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> pb.ModelReadyResponse:
        entry = self._catalog.find(request.name, request.version)
        return pb.ModelReadyResponse(ready=entry.state is ModelState.READY)

    @answers
    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, context: Context
    ) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name=SERVER_NAME, version=self._version, extensions=EXTENSIONS)

    @answers
    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: Context
    ) -> pb.ModelMetadataResponse:
        return describe.metadata(self._catalog.find(request.name, request.version).ready_model())

    @answers
    async def ModelConfig(self, request: pb.ModelConfigRequest, context: Context) -> pb.ModelConfigResponse:
        model = self._catalog.find(request.name, request.version).ready_model()
        return pb.ModelConfigResponse(config=describe.model_config(model, self._device_kind()))

    @answers
    async def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, context: Context
    ) -> pb.ModelStatisticsResponse:
        if request.name:
            entries = [self._catalog.find(request.name, request.version)]
        else:
            entries = [entry for entry in self._catalog.visible() if entry.model is not None]
        response = pb.ModelStatisticsResponse()
        response.model_stats.extend(describe.statistics(entry, self._totals(entry)) for entry in entries)
        return response

    @answers
    async def ModelInfer(self, request: pb.ModelInferRequest, context: Context) -> pb.ModelInferResponse:
        response = await self._infer.answer(request, lambda: seconds_remaining(context))
        if _answers_a_stream(context):
            mark_final(response)
        return response

    async def ModelStreamInfer(
        self, request_iterator: AsyncIterator[pb.ModelInferRequest], context: Context
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        def answer(request: pb.ModelInferRequest) -> Awaitable[pb.ModelInferResponse]:
            return self._infer.answer(request, lambda: seconds_remaining(context))

        async for response in answer_stream(request_iterator, answer):
            yield response

    @answers
    async def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, context: Context
    ) -> pb.RepositoryIndexResponse:
        known = {entry.name for entry in self._catalog}
        not_in_use = await asyncio.to_thread(self._visible_on_disk, known)
        response = pb.RepositoryIndexResponse()
        rows = {entry.name: (entry.state.value, entry.reason) for entry in self._catalog.visible()}
        not_loaded = NOT_LOADED + _WHY_NOT_LOADED[self._control_mode]
        for name in not_in_use:
            if self._catalog.get(name) is None:
                rows[name] = (ModelState.UNAVAILABLE.value, not_loaded)
        for name, (state, reason) in sorted(rows.items()):
            if not request.ready or state == ModelState.READY.value:
                response.models.add(name=name, version=VERSION, state=state, reason=reason)
        return response

    @answers
    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: Context
    ) -> pb.RepositoryModelLoadResponse:
        require_explicit(self._control_mode, "models are loaded and unloaded")
        if request.parameters:
            given = ", ".join(f"'{key}'" for key in sorted(request.parameters))
            raise InvalidArgument(
                f"load parameters are not offered: {given}; change the bundle's manifest.yaml"
            )
        name = request.model_name
        bundles = await asyncio.to_thread(self._repository.find)
        if name not in bundles or await asyncio.to_thread(declares_internal, bundles[name]):
            raise ModelNotFound(f"no bundle named '{name}' in the model repository")
        try:
            await load_together(self._loader, self._catalog, name, bundles)
        except BundleError as error:
            raise FailedPrecondition(f"model '{name}' failed to load: {error}") from None
        return pb.RepositoryModelLoadResponse()

    @answers
    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: Context
    ) -> pb.RepositoryModelUnloadResponse:
        require_explicit(self._control_mode, "models are loaded and unloaded")
        entry = self._catalog.get(request.model_name)
        if entry is None or entry.internal:
            raise ModelNotFound(f"model '{request.model_name}' is not loaded")
        await unload_together(self._loader, self._catalog, request.model_name)
        return pb.RepositoryModelUnloadResponse()

    def _visible_on_disk(self, known: Collection[str]) -> list[str]:
        """Names of bundles in the repository, apart from those `known`, that clients may see. Blocks."""
        found = self._repository.find()
        return [n for n, path in found.items() if n not in known and not declares_internal(path)]

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
        self._regions.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    @answers
    async def SystemSharedMemoryUnregister(
        self, request: pb.SystemSharedMemoryUnregisterRequest, context: Context
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        self._regions.unregister(request.name)
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
        return self._log_settings.apply(request.settings)

    @answers
    async def IsSameIPCNamespace(
        self, request: pb.IsSameIPCNamespaceRequest, context: Context
    ) -> pb.IsSameIPCNamespaceResponse:
        return pb.IsSameIPCNamespaceResponse(same=same_ipc_namespace(request.name))
