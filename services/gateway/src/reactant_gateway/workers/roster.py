"""The workers this gateway knows: each with its handle, its connections and its watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, final

from reactant_core.config.gateway import GatewayConfig
from reactant_gateway.router import Router
from reactant_gateway.workers.discovery import Discovery
from reactant_gateway.workers.endpoints import Endpoint, endpoints_of
from reactant_gateway.workers.handle import WorkerHandle, open_handle
from reactant_gateway.workers.pool import LinkSettings, WorkerLink

_LOOK_SECONDS: Final = 3.0


@final
class Roster:
    """Keeps handles, links and watches of one and the same set of workers. Lives on the event loop.

    Attributes:
        links: connections by worker, as they are now.
        discovery: watches the workers.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        router: Router,
        before_admission: Callable[[WorkerHandle], Awaitable[None]],
    ) -> None:
        self._config = config
        self._links: dict[str, WorkerLink] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.links: Mapping[str, WorkerLink] = self._links
        self.discovery = Discovery(
            router=router,
            links=self._links,
            before_admission=before_admission,
            probe_seconds=config.worker_client.probe_seconds,
            probe_timeout_seconds=config.worker_client.probe_timeout_seconds,
        )
        for endpoint in endpoints_of(config):
            self._join(endpoint)

    @property
    def handles(self) -> Sequence[WorkerHandle]:
        """Every worker, in the order they came."""
        return self.discovery.handles

    def follow(self, config: GatewayConfig) -> None:
        """Takes over endpoints and times of another configuration.

        Workers that it lists as before stay as they are. One that it does not list gets no requests any
        more and keeps its connections until it has answered those it has.
        """
        self._config = config
        client = config.worker_client
        self.discovery.set_times(
            probe_seconds=client.probe_seconds, probe_timeout_seconds=client.probe_timeout_seconds
        )
        for link in self._links.values():
            link.settings = self._settings()
        wanted = {endpoint.name: endpoint for endpoint in endpoints_of(config)}
        leaving = []
        for handle in self.handles:
            if wanted.get(handle.name) == handle.endpoint:
                del wanted[handle.name]
            elif handle.name in wanted:
                self._leave(handle)
            else:
                leaving.append(handle)
        for endpoint in wanted.values():
            self._join(endpoint)
        if leaving:
            self._spawn(self._leave_after_a_look(leaving))

    async def _leave_after_a_look(self, handles: Sequence[WorkerHandle]) -> None:
        """Lets workers go when those in their place have been looked at, so that no request finds nobody."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await self.discovery.wait_looked()
        # The configuration may have come back to them meanwhile.
        listed = {endpoint.name for endpoint in endpoints_of(self._config)}
        for handle in handles:
            if handle in self.handles and handle.name not in listed:
                self._leave(handle)

    async def close(self) -> None:
        """Closes every connection; what is in flight on them is lost."""
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*(link.close() for link in self._links.values()))
        await asyncio.gather(*(handle.close() for handle in self.handles))

    def _settings(self) -> LinkSettings:
        client = self._config.worker_client
        return LinkSettings(
            max_connections=client.max_connections,
            max_in_flight=client.max_in_flight,
            ping_seconds=client.ping_seconds,
            ping_timeout_seconds=client.ping_timeout_seconds,
        )

    def _join(self, endpoint: Endpoint) -> None:
        name = endpoint.name
        self._links[name] = WorkerLink(
            name, endpoint.address, self._settings(), lambda reason: self.discovery.lost(name, reason)
        )
        self.discovery.add(open_handle(endpoint, self._config.grpc))

    def _leave(self, handle: WorkerHandle) -> None:
        link = self._links.pop(handle.name)
        self.discovery.remove(handle.name)

        async def leave() -> None:
            await link.retire()
            await handle.close()

        self._spawn(leave())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
