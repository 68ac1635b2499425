"""The gateway's data plane in this process, in front of scripted workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from services.gateway.tests.support.client import Client
from services.gateway.tests.support.worker import Worker

from reactant_gateway.forward.forwarder import Forwarder, Limits
from reactant_gateway.forward.listener import Listener
from reactant_gateway.local.server import LocalServer
from reactant_gateway.metrics import GatewayMetrics
from reactant_gateway.router import Router
from reactant_gateway.workers.pool import LinkSettings, WorkerLink
from reactant_policy.routing.spread import SPREADS
from reactant_policy.routing.table import ModelView, WorkerView, build_table


class Rig:
    """What `gateway` gives to a test.

    Attributes:
        lost: (worker, reason) as the links told it.
        refreshes: how often the table was asked for anew; `appear` is what it finds then.
        holders: workers by shared-memory region.
    """

    def __init__(
        self, workers: tuple[Worker, ...], settings: LinkSettings, limits: Limits, basis: str
    ) -> None:
        self.workers = {worker.name: worker for worker in workers}
        self.lost: list[tuple[str, str]] = []
        self.refreshes = 0
        self.appear: list[ModelView] = []
        self.holders: dict[str, frozenset[str]] = {}
        self.router = Router(SPREADS["round_robin" if basis == "requests" else "least_outstanding"](), basis)
        self.links = {
            w.name: WorkerLink(w.name, w.address, settings, partial(self._lost, w.name)) for w in workers
        }
        self.forwarder = Forwarder(
            router=self.router,
            links=self.links,
            limits=limits,
            metrics=GatewayMetrics(CollectorRegistry()),
            refresh=self._refresh,
            holders=lambda region: self.holders.get(region, frozenset()),
        )
        self.local = Worker("local")
        self.listener: Listener | None = None
        self.port = 0
        self._stack = AsyncExitStack()

    def serve(self, *models: ModelView, workers: tuple[str, ...] | None = None) -> None:
        """All workers, or those named, have `models` ready."""
        named = self.workers if workers is None else workers
        self.router.swap(build_table(WorkerView(name, True, {m.name: m for m in models}) for name in named))

    async def client(self, **options: Any) -> Client:
        """A new client connection."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: Client(**options), "127.0.0.1", self.port)
        self._stack.callback(client.transport.abort)
        return client

    def _lost(self, worker: str, reason: str) -> None:
        self.lost.append((worker, reason))

    async def _refresh(self) -> None:
        self.refreshes += 1
        if self.appear:
            self.serve(*self.appear)


@contextmanager
def no_faults() -> Iterator[None]:
    """Fails when an exception has reached the event loop, which would end a connection and all on it."""
    faults: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: faults.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)
    assert not faults, faults


@asynccontextmanager
async def gateway(
    *workers: Worker,
    models: tuple[ModelView, ...] = (ModelView("m", "READY"),),
    settings: LinkSettings | None = None,
    max_request_bytes: int = 1 << 30,
    max_response_bytes: int = 1 << 30,
    max_in_flight: int = 1024,
    basis: str = "requests",
    paths: dict[str, str] | None = None,
    local_server: Callable[[Router], LocalServer] | None = None,
) -> AsyncIterator[Rig]:
    """Starts the workers, those in `paths` at Unix sockets, and a gateway connected to each of them.

    What is not inference is answered by `rig.local`, or by a real `local_server` with all that it serves.
    """
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        stack.enter_context(no_faults())
        for worker in workers:
            await worker.start((paths or {}).get(worker.name))
            stack.push_async_callback(worker.stop)
        limits = Limits(max_request_bytes, max_response_bytes, max_in_flight)
        rig = Rig(workers, settings or LinkSettings(max_in_flight=max_in_flight), limits, basis)
        await rig.local.start()
        stack.push_async_callback(rig.local.stop)
        address = rig.local.address
        services: tuple[str, ...] = ("inference.GRPCInferenceService", "grpc.health.v1.Health")
        if local_server is not None:
            server = local_server(rig.router)
            address, services = await server.start(), server.services
            stack.push_async_callback(server.stop)
        local = WorkerLink("local", address, LinkSettings(), partial(rig._lost, "local"))
        rig.listener = Listener(rig.forwarder, local, services)
        for link in (local, *rig.links.values()):
            stack.push_async_callback(link.close)
            await link.connect()
        port = await loop.create_server(rig.listener.new_connection, "127.0.0.1", 0)
        stack.callback(port.close)
        rig.port = port.sockets[0].getsockname()[1]
        rig.serve(*models)
        stack.push_async_callback(rig._stack.aclose)
        stack.callback(rig.listener.close)
        yield rig
