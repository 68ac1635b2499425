"""A gateway's parts, put together: started, reconfigured, drained, stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Final, final

from prometheus_client import CollectorRegistry

from reactant_core import logs
from reactant_core.config.gateway import GatewayConfig
from reactant_core.errors import FailedPrecondition
from reactant_core.lifecycle import Stop
from reactant_core.packing.packer import LPT_PACKING, Packer
from reactant_core.packing.report import homes_of, known
from reactant_core.packing.steering import Steering
from reactant_core.web import Readiness, serve_health
from reactant_gateway.forward.forwarder import Forwarder, Limits
from reactant_gateway.forward.listener import Listener
from reactant_gateway.local.regions import RegionBook
from reactant_gateway.local.server import LocalServer
from reactant_gateway.metrics import GatewayMetrics, Watched
from reactant_gateway.node_page import NodePage
from reactant_gateway.packing.compactor import Compactor
from reactant_gateway.packing.metrics import PackingMetrics
from reactant_gateway.packing.startup import StartWait, progress
from reactant_gateway.router import Router
from reactant_gateway.scrape import Target
from reactant_gateway.sockets import BACKLOG, Listening, address_of, most_connections
from reactant_gateway.workers.pool import LinkSettings, WorkerLink
from reactant_gateway.workers.roster import Roster
from reactant_policy.routing.spread import RoundRobin
from reactant_policy.routing.table import RoutingTable

_FIRST_LOOK_SECONDS: Final = 3.0
_OTHERS_LOOK_SECONDS: Final = 0.25
_LEAVE_SECONDS: Final = 1.0
_WAIT_LOOK_SECONDS: Final = 0.2
_PROGRESS_SECONDS: Final = 5.0
_FIRST_PLACEMENT_SECONDS: Final = 30.0

_ALONE: Final = (
    "this gateway places models by itself: several over the same workers would each place differently; "
    "have one alone, or a registry"
)

_log = logs.get_logger(__name__)


@final
class Gateway:
    """One process in front of many workers. Construct on the event loop that serves.

    Args:
        config: what it runs with.
        listening: its ports.
        embedded: the workers start beside it, as parts of one node.
    """

    def __init__(self, config: GatewayConfig, listening: Listening, *, embedded: bool = False) -> None:
        self._config = config
        self._embedded = embedded
        self._listening = listening
        self._state = "starting"
        self._served: set[str] = set()
        self._registry = CollectorRegistry()
        self._metrics = GatewayMetrics(self._registry, info={"version": version("reactant-gateway")})
        self._router = Router(RoundRobin(), config.scheduling.work_basis)
        self._regions = RegionBook(lambda: self._roster.handles, self._lost)
        self._roster = Roster(config, router=self._router, before_admission=self._regions.replay)
        self._discovery = self._roster.discovery
        self._compactor = Compactor(lambda: self._roster.handles)
        self._packer = Packer(
            config.scheduling,
            board=self._router,
            totals=self._discovery.totals,
            probe_every=self._probe_every,
            compact=self._compactor,
            standing=() if embedded else (_ALONE,),
        )
        self._steering = Steering(config.scheduling, self._packer, self._router)
        PackingMetrics(self._registry, self._packer, self._router, lambda: self._served)
        self._local = LocalServer(
            self._discovery,
            self._router,
            self._regions,
            steering=self._steering,
            max_recv_msg_bytes=config.grpc.max_recv_msg_bytes,
            max_send_msg_bytes=config.grpc.max_send_msg_bytes,
        )
        self._forwarder = Forwarder(
            router=self._router,
            links=self._roster.links,
            limits=_limits(config),
            metrics=self._metrics,
            refresh=self._discovery.refresh,
            holders=self._regions.holders,
            suspect=self._discovery.suspect,
        )
        self._local_link: WorkerLink | None = None
        self._listener: Listener | None = None
        self._server: asyncio.AbstractServer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._packing: asyncio.Task[None] | None = None
        self._web = serve_health(
            "",
            0,
            ready=self._readyz,
            page=NodePage(self._registry, self._metrics, self._targets),
            sock=listening.http,
        )
        self._router.on_swap += [self._local.health_from, self._swapped]
        self._swapped(self._router.table)

    async def start(self, stop: Stop) -> None:
        """Answers from here on; ready when a worker is.

        In `lpt_packing` not before the workers have compiled, those of the own node or those that come
        within the wait that was set; nor at all when a stop is asked for before that.

        Raises:
            OSError: the gateway's own server cannot be had.
            StartRefused: the workers are such that the configuration must not be followed.
        """
        address = await self._local.start()
        # That server is in this process: it cannot fall silent without us.
        settings = LinkSettings(max_in_flight=1 << 30, ping_seconds=3600.0)
        link = self._local_link = WorkerLink("local", address, settings, self._local_lost)
        if not await link.connect():
            raise OSError(f"the gateway's own server at {address} does not answer")
        listener = self._listener = Listener(self._forwarder, link, self._local.services, most_connections())
        self._metrics.watch(self._watched(listener))
        await self._web.start()
        self._watching = asyncio.create_task(self._discovery.run(), name="discovery")
        await self._first_look(self._watching)
        if self._packer.planner is not None:
            await self._wait_compiled(stop, self._watching)
        self._packing = asyncio.create_task(self._packer.run(), name="packing")
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_PLACEMENT_SECONDS):
                await self._packer.settled()
        if stop.requested.is_set():
            return
        self._server = await asyncio.get_running_loop().create_server(
            listener.new_connection, sock=self._listening.grpc, backlog=BACKLOG
        )
        self._state = "waiting for a worker"
        _log.info(
            "listening",
            grpc=address_of(self._listening.grpc),
            http=address_of(self._listening.http),
            workers=len(self._roster.handles),
            scheduling=self._config.scheduling.mode,
        )

    async def _first_look(self, watching: asyncio.Task[None]) -> None:
        """Looks at the workers before clients come, who may have waited since another gateway ended.

        One that is silent holds nobody up for long where another can be had.
        """
        looked = asyncio.create_task(self._discovery.wait_looked())
        first = asyncio.create_task(self._discovery.wait_first_ready())
        tasks = {looked, first, watching}
        await asyncio.wait(tasks, timeout=_FIRST_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(
            {looked, watching}, timeout=_OTHERS_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        looked.cancel()
        first.cancel()

    async def _wait_compiled(self, stop: Stop, watching: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        limit = self._config.startup_wait_seconds
        wait = StartWait(loop.time(), None if self._embedded and not limit else limit)
        stopping = asyncio.create_task(stop.requested.wait())
        said, said_at = None, 0.0
        try:
            while not wait.over(loop.time(), self._roster.handles):
                found = progress(self._roster.handles)
                self._state = found.state
                news = said is None or found.missing != said.missing
                if news or (found != said and loop.time() - said_at >= _PROGRESS_SECONDS):
                    said, said_at = found, loop.time()
                    _log.info(
                        "waiting for workers to compile",
                        ready=f"{found.ready} of {found.total}",
                        models=f"{found.models_ready} of {found.models_total}",
                        missing="; ".join(f"{name}: {reason}" for name, reason in found.missing.items()),
                    )
                await asyncio.wait(
                    {stopping, watching}, timeout=_WAIT_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if stopping.done() or watching.done():
                    return
        finally:
            stopping.cancel()
        missing = progress(self._roster.handles).missing
        if missing:
            named = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
            _log.warning("serving without workers that have not compiled in time", missing=named)

    async def serve(self, stop: Stop) -> None:
        """Returns when a stop was asked for.

        Raises:
            RuntimeError: the gateway's own server ended by itself.
            Exception: whatever ended the watching or the placing, which is a fault of ours.
        """
        assert self._watching is not None
        assert self._packing is not None
        stopping = asyncio.create_task(stop.requested.wait())
        died = asyncio.create_task(self._local.wait_died())
        first = asyncio.create_task(self._discovery.wait_first_ready())
        try:
            ends = {stopping, self._watching, self._packing, died}
            await asyncio.wait({*ends, first}, return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                _log.info("ready", models=len(self._router.table.routes))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                raise RuntimeError(died.result())
            if not stopping.done():
                next(task for task in (self._watching, self._packing) if task.done()).result()
        finally:
            died.cancel()
            stopping.cancel()
            first.cancel()

    def follow(self, config: GatewayConfig) -> None:
        """Takes over what can change in a running gateway."""
        self._config = config
        replaced = self._steering.follow(config.scheduling)
        if replaced:
            _log.info(
                "changes made while running are replaced by the configuration", keys=", ".join(replaced)
            )
        self._roster.follow(config)
        self._packer.read_as_before()
        self._forwarder.limits = _limits(config)

    def refusals(self, config: GatewayConfig) -> list[str]:
        """Why `config` cannot be followed as the workers are now, a sentence each."""
        if config.scheduling.mode != LPT_PACKING:
            return []
        try:
            self._steering.require_fit()
        except FailedPrecondition as error:
            return [error.message]
        return []

    async def drain(self) -> None:
        """Announces the end, goes on for the lame-duck time, then refuses and finishes what was accepted."""
        assert self._listener is not None
        self._state = "draining"
        self._discovery.expect_end()
        self._local.drain()
        _log.info("draining", in_flight=self._forwarder.in_flight)
        await asyncio.sleep(self._config.lameduck_seconds)
        if self._listening.shared and self._server is not None:
            self._server.close()
        self._listener.drain()
        try:
            async with asyncio.timeout(self._config.drain_timeout_seconds):
                await self._answered()
                await self._clients_gone(self._listener)
                # What came while they still had to hear that they should go.
                await self._answered()
        except TimeoutError:
            _log.warning("drain timed out", in_flight=self._forwarder.in_flight)
        self._state = "drained"
        _log.info("drained")

    async def _answered(self) -> None:
        idle = asyncio.Event()
        self._forwarder.when_idle(idle.set)
        await idle.wait()

    async def _clients_gone(self, listener: Listener) -> None:
        left = asyncio.Event()
        listener.when_left(left.set)
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await left.wait()
        except TimeoutError:
            # One that watches our health stays as long as we do.
            _log.info("closing connections", clients=listener.connections)

    async def stop(self) -> None:
        """Closes the ports and every connection."""
        if self._server is not None:
            self._server.close()
        if self._listener is not None:
            self._listener.close()
        for task in (self._packing, self._watching):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self._compactor.close()
        if self._local_link is not None:
            await self._local_link.close()
        await self._roster.close()
        await self._local.stop()
        await self._web.stop()
        _log.info("stopped")

    def _readyz(self) -> Readiness:
        workers = {handle.name: "ready" if handle.ready else handle.reason for handle in self._roster.handles}
        routes = self._router.table.routes.values()
        ready = self._local.ready and self._server is not None
        detail = {
            "state": "ready" if ready else self._state,
            "workers": workers,
            "models": {"total": len(routes), "ready": sum(1 for route in routes if route.candidates)},
        }
        return Readiness(ready, detail)

    def _watched(self, listener: Listener) -> Watched:
        router = self._router
        return Watched(
            basis=lambda: router.basis,
            work=lambda: router.load,
            ready=lambda: {handle.name: handle.ready for handle in self._roster.handles},
            replicas=self._replicas,
            outstanding=lambda: self._by_model(router.replica_outstanding),
            routed=lambda: self._by_model(router.routed),
            table_size=lambda: len(router.table.routes),
            requests=lambda: self._forwarder.in_flight,
            connections=lambda: listener.connections,
        )

    def _replicas(self) -> dict[str, int]:
        homes = homes_of(self._packer, self._router)
        return {name: len(homes[name]) for name in self._served}

    def _probe_every(self, seconds: float | None) -> None:
        client = self._config.worker_client
        self._discovery.set_times(
            probe_seconds=client.probe_seconds if seconds is None else min(seconds, client.probe_seconds),
            probe_timeout_seconds=client.probe_timeout_seconds,
        )

    def _by_model(self, counts: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        served = self._served
        return {(model, worker): count for (worker, model), count in counts.items() if model in served}

    def _targets(self) -> list[Target]:
        return [
            Target(handle.name, handle.endpoint.metrics_address, {"worker": handle.name, "gpu": handle.gpu})
            for handle in self._roster.handles
            if handle.endpoint.metrics_address is not None
        ]

    def _lost(self, worker: str, reason: str) -> None:
        self._discovery.lost(worker, reason)

    def _local_lost(self, reason: str) -> None:
        _log.error("connection to the gateway's own server lost", reason=reason)

    def _swapped(self, table: RoutingTable) -> None:
        # Those that some worker has, or had when it was lost.
        served = {name for name, route in table.routes.items() if route.candidates or known(table, name)}
        self._served = served
        self._metrics.keep(models=served, workers=table.workers)


def _limits(config: GatewayConfig) -> Limits:
    return Limits(
        config.grpc.max_recv_msg_bytes, config.grpc.max_send_msg_bytes, config.worker_client.max_in_flight
    )
