"""Workers of a few lines on real sockets, and a discovery over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest

from reactant_core.config.sections import GrpcConfig
from reactant_core.rpc import RpcServer, create_server
from reactant_gateway.router import Router
from reactant_gateway.workers.discovery import Discovery
from reactant_gateway.workers.endpoints import Endpoint
from reactant_gateway.workers.handle import WorkerHandle, open_handle
from reactant_policy.routing.spread import RoundRobin
from reactant_proto import control_pb2, inference_pb2


@dataclass
class FakeWorker:
    """A worker under test; its fields are what it answers from now on.

    Attributes:
        models: name to state.
        controls: what ModelControlStatus lists; None: the server has no such service.
        discipline: what ModelControlStatus says of it.
        weight_budget_bytes: likewise.
        ready: what ServerReady answers.
        release: ServerReady waits for it while it is set to an event.
        index_fault: RepositoryIndex fails with it.
        control_fault: ModelControlStatus fails with it.
        garbage: ServerReady answers bytes that are no message.
        probes: ServerReady calls so far.
    """

    name: str
    models: dict[str, str] = field(default_factory=lambda: {"m": "READY"})
    controls: list[control_pb2.ModelControl] | None = field(default_factory=list)
    discipline: str = "fifo"
    weight_budget_bytes: int = 0
    ready: bool = True
    release: asyncio.Event | None = None
    index_fault: grpc.StatusCode | None = None
    control_fault: grpc.StatusCode | None = None
    garbage: bool = False
    probes: int = 0
    port: int = 0
    server: RpcServer | None = None

    async def start(self) -> None:
        """Serves; on the same port as before if it did before."""
        self.server = create_server(transport="grpcio")
        methods: dict[str, Any] = {
            "ServerReady": _handler(self._ready),
            "RepositoryIndex": _handler(self._index),
        }
        self.server.server.add_registered_method_handlers("inference.GRPCInferenceService", methods)
        self.server.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods),)
        )
        if self.controls is not None:
            methods = {"ModelControlStatus": _handler(self._control)}
            self.server.server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler("reactant.ControlService", methods),)
            )
        self.port = self.server.bind("127.0.0.1", self.port)
        await self.server.start()

    async def stop(self) -> None:
        """Ends; the port refuses from now on."""
        if self.server is not None:
            await self.server.stop(0)
            self.server = None

    async def _ready(self, _: bytes, __: Any) -> bytes:
        self.probes += 1
        if self.release is not None:
            await self.release.wait()
        if self.garbage:
            return b"\xff\xff\xff"
        return inference_pb2.ServerReadyResponse(ready=self.ready).SerializeToString()

    async def _index(self, _: bytes, context: Any) -> bytes:
        if self.index_fault is not None:
            await context.abort(self.index_fault, "no index today")
        entry = inference_pb2.RepositoryIndexResponse.ModelIndex
        entries = [entry(name=name, version="1", state=state) for name, state in self.models.items()]
        return inference_pb2.RepositoryIndexResponse(models=entries).SerializeToString()

    async def _control(self, _: bytes, context: Any) -> bytes:
        if self.control_fault is not None:
            await context.abort(self.control_fault, "no control today")
        return control_pb2.ModelControlStatusResponse(
            models=self.controls or [],
            discipline=self.discipline,
            weight_budget_bytes=self.weight_budget_bytes,
        ).SerializeToString()


def _handler(method: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(method)


@dataclass
class FakeLink:
    """A link that connects as told; `events` is shared with the rest of the test."""

    name: str
    events: list[str]
    answers: list[bool | Exception] = field(default_factory=list)
    connected: bool = True

    async def connect(self) -> bool:
        self.events.append(f"connect {self.name}")
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Fleet:
    """A running discovery."""

    discovery: Discovery
    router: Router
    links: dict[str, FakeLink]
    events: list[str]

    def handle(self, name: str) -> WorkerHandle:
        return next(handle for handle in self.discovery.handles if handle.name == name)

    def candidates(self, model: str = "m") -> tuple[str, ...] | None:
        """The model's candidates; None when no worker knows it."""
        route = self.router.find(model)
        return None if route is None else route.candidates


@asynccontextmanager
async def discover(
    *workers: FakeWorker, addresses: dict[str, str] | None = None, before: Any = None, **options: Any
) -> AsyncIterator[Fleet]:
    """Runs a discovery over `workers`, which start and stop with it, and further `addresses` by name."""
    events: list[str] = []

    async def before_admission(handle: WorkerHandle) -> None:
        events.append(f"replay {handle.name}")
        if before is not None:
            await before(handle)

    options = {"probe_seconds": 60.0, "probe_timeout_seconds": 5.0, **options}
    async with AsyncExitStack() as stack:
        named = dict(addresses or {})
        for worker in workers:
            await worker.start()
            stack.push_async_callback(worker.stop)
            named[worker.name] = f"127.0.0.1:{worker.port}"
        handles = [open_handle(Endpoint(n, a, None, True), GrpcConfig()) for n, a in sorted(named.items())]
        for handle in handles:
            stack.push_async_callback(handle.close)
        links = {name: FakeLink(name, events) for name in named}
        router = Router(RoundRobin(), "items")
        discovery = Discovery(
            handles, router=router, links=links, before_admission=before_admission, **options
        )
        task = asyncio.create_task(discovery.run())
        try:
            yield Fleet(discovery, router, links, events)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture(name="discovering")
def _discovering() -> Callable[..., AbstractAsyncContextManager[Fleet]]:
    """`async with discovering(*workers, **options of Discovery) as fleet`."""
    return discover


@pytest.fixture(name="worker")
def _worker() -> Callable[..., FakeWorker]:
    """`worker(name, **fields)`: not started yet."""
    return FakeWorker
