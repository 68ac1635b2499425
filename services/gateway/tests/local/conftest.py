"""Fake workers behind real gRPC, and a local server in front of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2_grpc

from reactant_core.config.sections import GrpcConfig
from reactant_core.errors import AlreadyExists, ModelNotFound, ServingError
from reactant_core.kserve.surface import unknown_model
from reactant_core.packing.steered import Steered
from reactant_core.rpc import RpcServer, create_channel, create_server
from reactant_core.rpc.servicer import Context, answers, seconds_remaining
from reactant_core.testing import eventually
from reactant_gateway.local.regions import RegionBook
from reactant_gateway.local.server import LocalServer
from reactant_gateway.router import Router
from reactant_gateway.workers.endpoints import Endpoint
from reactant_gateway.workers.handle import WorkerHandle, open_handle
from reactant_policy.routing.spread import SPREADS
from reactant_policy.routing.table import ModelView, WorkerView, build_table
from reactant_proto import control_pb2, control_pb2_grpc, gateway_pb2_grpc, inference_pb2_grpc
from reactant_proto import inference_pb2 as pb


class FakeWorker(inference_pb2_grpc.GRPCInferenceServiceServicer, control_pb2_grpc.ControlServiceServicer):
    """Answers from what it is told to have.

    Attributes:
        models: state and reason by name.
        regions: what is registered.
        compaction: what CompactMemory answers.
        hanging: RPCs that never answer.
        failing: errors instead of answers, by RPC.
        calls: RPCs as they came.
        hops: the hop header of each call.
        remaining: seconds that each call had left.
    """

    def __init__(self, name: str, path: Path, **models: str) -> None:
        self.name = name
        self.models = {model: (state, "") for model, state in models.items()}
        self.regions: dict[str, tuple[str, int, int]] = {}
        self.compaction = control_pb2.CompactMemoryResponse(summary="nothing to move")
        self.hanging: set[str] = set()
        self.failing: dict[str, ServingError] = {}
        self.calls: list[str] = []
        self.hops: list[Any] = []
        self.remaining: list[float | None] = []
        self.same_host = True
        self._path = path
        self._server: RpcServer | None = None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.name, f"unix:{self._path}", None, self.same_host)

    @property
    def running(self) -> bool:
        return self._server is not None

    async def start(self) -> None:
        """Starts it, as a new process would: without regions."""
        self.regions = {}
        self._server = create_server(transport="grpcio")
        inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server.server)
        control_pb2_grpc.add_ControlServiceServicer_to_server(self, self._server.server)
        self._server.bind_unix(self._path)
        await self._server.start()

    async def kill(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
        self._server = None

    def view(self) -> WorkerView:
        models = {name: ModelView(name, state, reason) for name, (state, reason) in self.models.items()}
        return WorkerView(self.name, self.running, models)

    def count(self, rpc: str) -> int:
        return self.calls.count(rpc)

    async def _enter(self, rpc: str, context: Context) -> None:
        self.calls.append(rpc)
        self.hops.append(dict(context.invocation_metadata() or ()).get("reactant-hop"))
        self.remaining.append(seconds_remaining(context))
        if rpc in self.hanging:
            await asyncio.Event().wait()
        if rpc in self.failing:
            raise self.failing[rpc]

    def _known(self, name: str) -> None:
        if name not in self.models:
            raise unknown_model(name)

    @answers
    async def ServerLive(self, request: pb.ServerLiveRequest, context: Context) -> Any:  # noqa: N802
        return pb.ServerLiveResponse(live=True)

    @answers
    async def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> Any:  # noqa: N802
        await self._enter("ModelReady", context)
        self._known(request.name)
        return pb.ModelReadyResponse(ready=self.models[request.name][0] == "READY")

    @answers
    async def ModelMetadata(self, request: pb.ModelMetadataRequest, context: Context) -> Any:  # noqa: N802
        await self._enter("ModelMetadata", context)
        self._known(request.name)
        return pb.ModelMetadataResponse(name=request.name, platform=self.name)

    @answers
    async def ModelConfig(self, request: pb.ModelConfigRequest, context: Context) -> Any:  # noqa: N802
        await self._enter("ModelConfig", context)
        self._known(request.name)
        response = pb.ModelConfigResponse()
        response.config.name, response.config.platform = request.name, self.name
        return response

    @answers
    async def ModelStatistics(self, request: pb.ModelStatisticsRequest, context: Context) -> Any:  # noqa: N802
        await self._enter("ModelStatistics", context)
        if request.name:
            self._known(request.name)
        response = pb.ModelStatisticsResponse()
        for name in [request.name] if request.name else self.models:
            response.model_stats.add(name=name, version="1", inference_count=5)
        return response

    @answers
    async def RepositoryIndex(self, request: pb.RepositoryIndexRequest, context: Context) -> Any:  # noqa: N802
        await self._enter("RepositoryIndex", context)
        response = pb.RepositoryIndexResponse()
        for name, (state, reason) in self.models.items():
            response.models.add(name=name, version="1", state=state, reason=reason)
        return response

    @answers
    async def RepositoryModelLoad(  # noqa: N802
        self, request: pb.RepositoryModelLoadRequest, context: Context
    ) -> Any:
        await self._enter("RepositoryModelLoad", context)
        self.models[request.model_name] = ("READY", "")
        return pb.RepositoryModelLoadResponse()

    @answers
    async def RepositoryModelUnload(  # noqa: N802
        self, request: pb.RepositoryModelUnloadRequest, context: Context
    ) -> Any:
        await self._enter("RepositoryModelUnload", context)
        if request.model_name not in self.models:
            raise ModelNotFound(f"model '{request.model_name}' is not loaded")
        self.models[request.model_name] = ("UNAVAILABLE", "not loaded")
        return pb.RepositoryModelUnloadResponse()

    @answers
    async def CompactMemory(self, request: control_pb2.CompactMemoryRequest, context: Context) -> Any:  # noqa: N802
        await self._enter("CompactMemory", context)
        return self.compaction

    @answers
    async def LogSettings(self, request: pb.LogSettingsRequest, context: Context) -> Any:  # noqa: N802
        await self._enter("LogSettings", context)
        return pb.LogSettingsResponse()

    @answers
    async def SystemSharedMemoryStatus(  # noqa: N802
        self, request: pb.SystemSharedMemoryStatusRequest, context: Context
    ) -> Any:
        await self._enter("SystemSharedMemoryStatus", context)
        response = pb.SystemSharedMemoryStatusResponse()
        for name, (key, offset, size) in self.regions.items():
            status = response.regions[name]
            status.name, status.key, status.offset, status.byte_size = name, key, offset, size
        return response

    @answers
    async def SystemSharedMemoryRegister(  # noqa: N802
        self, request: pb.SystemSharedMemoryRegisterRequest, context: Context
    ) -> Any:
        await self._enter("SystemSharedMemoryRegister", context)
        if request.name in self.regions:
            raise AlreadyExists("taken")
        self.regions[request.name] = (request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    @answers
    async def SystemSharedMemoryUnregister(  # noqa: N802
        self, request: pb.SystemSharedMemoryUnregisterRequest, context: Context
    ) -> Any:
        await self._enter("SystemSharedMemoryUnregister", context)
        if request.name:
            self.regions.pop(request.name, None)
        else:
            self.regions.clear()
        return pb.SystemSharedMemoryUnregisterResponse()


@dataclass
class FakeFleet:
    """A discovery that sees at once what the fakes have, whenever it is asked to look."""

    workers: list[FakeWorker]
    handles: list[WorkerHandle]
    router: Router
    swapped: Callable[[Any], None] = lambda _: None
    refreshes: list[bool] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    def ready_handles(self) -> list[WorkerHandle]:
        return [handle for handle in self.handles if handle.ready]

    def look(self) -> None:
        for worker, handle in zip(self.workers, self.handles, strict=True):
            handle.view = worker.view()
        self.swap()

    def swap(self) -> None:
        self.router.swap(build_table(handle.view for handle in self.handles))
        self.swapped(self.router.table)

    async def refresh(self, *, force: bool = False) -> None:
        self.refreshes.append(force)
        self.look()

    def lost(self, worker: str, reason: str) -> None:
        self.losses.append(worker)
        for handle in self.handles:
            if handle.name == worker:
                handle.view = WorkerView(worker, False, handle.view.models)
        self.swap()


@dataclass
class Node:
    """A running local server, a client of it, and the workers behind it."""

    workers: list[FakeWorker]
    fleet: FakeFleet
    book: RegionBook
    server: LocalServer
    address: str
    channel: grpc.aio.Channel

    @property
    def stub(self) -> inference_pb2_grpc.GRPCInferenceServiceAsyncStub:
        return inference_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    @property
    def control(self) -> control_pb2_grpc.ControlServiceAsyncStub:
        return control_pb2_grpc.ControlServiceStub(self.channel)

    @property
    def scheduling(self) -> gateway_pb2_grpc.GatewayControlServiceAsyncStub:
        return gateway_pb2_grpc.GatewayControlServiceStub(self.channel)

    @property
    def health(self) -> Any:
        return health_pb2_grpc.HealthStub(self.channel)

    async def restart(self, index: int) -> None:
        """Kills and starts a worker, to the point where a probe of discovery has reached it."""
        await self.workers[index].kill()
        await self.workers[index].start()
        await eventually(lambda: self._answers(index))

    async def _answers(self, index: int) -> bool:
        try:
            answer = await self.handle(index).inference.ServerLive(
                pb.ServerLiveRequest(), wait_for_ready=True
            )
        except grpc.aio.AioRpcError:  # the channel has not noticed the end of the former one
            return False
        return answer.live

    def handle(self, index: int) -> WorkerHandle:
        return self.fleet.handles[index]


@asynccontextmanager
async def serve(
    folder: Path,
    *models: dict[str, str],
    dead: tuple[int, ...] = (),
    remote: tuple[int, ...] = (),
    patience: float = 0.1,
    shm: Path | None = None,
    steering: Steered | None = None,
) -> AsyncIterator[Node]:
    """One worker for each of `models`: worker0, worker1 ..., those of `dead` not running."""
    workers = [FakeWorker(f"worker{i}", folder / f"w{i}.sock", **has) for i, has in enumerate(models)]
    async with AsyncExitStack() as stack:
        for index, worker in enumerate(workers):
            worker.same_host = index not in remote
            if index not in dead:
                await worker.start()
            stack.push_async_callback(worker.kill)
        handles = [open_handle(worker.endpoint, GrpcConfig()) for worker in workers]
        for handle in handles:
            stack.push_async_callback(handle.close)
        router = Router(SPREADS["round_robin"](), "requests")
        fleet = FakeFleet(workers, handles, router)
        fleet.look()
        book = RegionBook(lambda: fleet.handles, fleet.lost, call_seconds=0.2, root=shm or folder)
        server = LocalServer(fleet, router, book, steering=steering, run_dir=folder, patience=patience)
        fleet.swapped = server.health_from
        address = await server.start()
        stack.push_async_callback(server.stop)
        fleet.look()
        channel = create_channel(address)
        stack.push_async_callback(channel.close)
        yield Node(workers, fleet, book, server, address, channel)


@pytest.fixture
def node(tmp_path: Path) -> Callable[..., Any]:
    """`async with node({"echo": "READY"}, {}, dead=(1,)) as n`: a local server and its workers."""

    def start(*models: dict[str, str], **options: Any) -> Any:
        return serve(tmp_path, *models, **options)

    return start


async def failure(call: Any) -> grpc.aio.AioRpcError:
    """The error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(call, 10)
    return caught.value


@pytest.fixture(name="failure")
def _failure() -> Any:
    return failure
