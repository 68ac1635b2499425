"""grpc.health.v1 driven by the service's own state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reactant_core.errors import clip
from reactant_core.rpc.server import RpcServer

MAX_WATCHERS = 4096
"""Watch calls open at a time, all clients together."""

_LONGEST_NAME = 512
_NO_NAME = "\0"
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@final
class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Answers Check and Watch for the whole server (name "") and for each model.

    Lives on the event loop: `set` and `remove` must be called from it.
    """

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {"": _NOT_SERVING}
        # Watchers of a name wait for its present event; a change sets it and puts a new one in its place.
        self._changes: dict[str, _Change] = {}
        self._stopping = False

    def set(self, name: str, serving: bool) -> None:
        """States whether `name` ("" for the server as a whole) serves, and tells its watchers."""
        self._put(name, _SERVING if serving else _NOT_SERVING)

    def shutdown(self) -> None:
        """States NOT_SERVING for every name, for good, and ends the Watch calls: a stop need not wait."""
        for name in list(self._statuses):
            self.set(name, False)
        self._stopping = True
        for change in self._changes.values():
            change.event.set()

    def remove(self, name: str) -> None:
        """Forgets `name`: Check gives NOT_FOUND, watchers see SERVICE_UNKNOWN."""
        self._put(name, None)

    def _put(self, name: str, status: int | None) -> None:
        if self._stopping or self._statuses.get(name) == status:
            return
        if status is None:
            del self._statuses[name]
        else:
            self._statuses[name] = status
        change = self._changes.get(name)
        if change is not None:
            change.event.set()
            change.event = asyncio.Event()

    def watchers(self) -> int:
        """Number of Watch calls open now."""
        return sum(change.watchers for change in self._changes.values())

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """The status of a known name; NOT_FOUND otherwise."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, clip(f"unknown service {request.service!r}"))
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """The status now and after each change, SERVICE_UNKNOWN while the name is not known.

        Ends with UNAVAILABLE when the server shuts down.
        """
        name = request.service
        if self.watchers() >= MAX_WATCHERS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHERS} watches are open, no more are taken"
            )
        if len(name) > _LONGEST_NAME:
            # No model can be called that; the name is not kept for as long as the client likes.
            name = _NO_NAME
        del request
        change = self._changes.setdefault(name, _Change())
        change.watchers += 1
        try:
            last = None
            while True:
                event = change.event
                status = self._statuses.get(name, _UNKNOWN)
                if status != last:
                    yield health_pb2.HealthCheckResponse(status=status)
                    last = status
                if self._stopping:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "server is shutting down")
                await event.wait()
        finally:
            change.watchers -= 1
            if change.watchers == 0 and self._changes.get(name) is change:
                del self._changes[name]


@final
class _Change:
    __slots__ = ("event", "watchers")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.watchers = 0


def add_health(server: RpcServer, servicer: HealthServicer) -> None:
    """Serves `servicer` on `server`; call before its start."""
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server.server)
