"""The HTTP/2 connections to one worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from reactant_core.logs import get_logger
from reactant_gateway.h2.client import ClientConnection

DIAL_SECONDS: Final = 2.0
"""Within so much a connection must be made and the other side must have spoken HTTP/2."""

# What a gRPC server takes by default (gRPC's "A8: client-side keepalive": five minutes), and a little more.
_RARE_PING_SECONDS: Final = 310.0

_log = get_logger(__name__)


@final
@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How connections are kept.

    Attributes:
        max_connections: a further one is opened when the worker's limit of streams is reached.
        max_in_flight: most requests in flight on the worker.
        ping_seconds: time between PINGs.
        ping_timeout_seconds: a PING not answered in this time loses the connection.
    """

    max_connections: int = 4
    max_in_flight: int = 1024
    ping_seconds: float = 1.0
    ping_timeout_seconds: float = 2.0


@final
class WorkerLink:
    """One worker's connections; opened by `connect`, renewed when the worker sends them away.

    Args:
        name: the worker.
        address: `host:port` or `unix:/path`.
        settings: see `LinkSettings`.
        on_lost: told with the reason when a connection was refused or reset or has fallen silent.

    Attributes:
        in_flight: requests on the worker; kept by whoever sends them.
        settings: in force for connections made from now on, and for `acquire`.
    """

    def __init__(
        self,
        name: str,
        address: str,
        settings: LinkSettings,
        on_lost: Callable[[str], None],
    ) -> None:
        self.name = name
        self._address = address
        self.settings = settings
        self._on_lost = on_lost
        self._connections: list[ClientConnection] = []
        self._dial: asyncio.Task[ClientConnection | None] | None = None
        self._closing = False
        self._pings = True
        self.in_flight = 0

    @property
    def connected(self) -> bool:
        """A request could be sent now."""
        return any(connection.usable for connection in self._connections)

    async def connect(self) -> bool:
        """Makes sure that there is a connection; False: the worker refuses, speaks no HTTP/2, or has left."""
        if not self.connected and not self._closing:
            # Whoever cancels the dial does not cancel us.
            await asyncio.wait([self._dialled()])
        return self.connected

    @property
    def may_widen(self) -> bool:
        """It is not full, and a further connection is being made."""
        dialling = self._dial is not None and not self._dial.done()
        return dialling and self.in_flight < self.settings.max_in_flight

    async def widened(self) -> None:
        """Returns when the connection being made stands, or cannot be had."""
        if self._dial is not None and not self._dial.done():
            await asyncio.wait([self._dial])

    def acquire(self) -> ClientConnection | None:
        """A connection that takes a request at once; None when there is none, or the worker is full."""
        if self.in_flight >= self.settings.max_in_flight:
            return None
        for connection in self._connections:
            if connection.has_room:
                if connection.crowded:
                    self._widen()
                return connection
        self._widen()
        return None

    def _widen(self) -> None:
        """One more connection, before those there are have no room, unless one has plenty."""
        plenty = any(c.has_room and not c.crowded for c in self._connections)
        if not plenty and len(self._connections) < self.settings.max_connections and not self._closing:
            self._dialled()

    async def retire(self) -> None:
        """Takes no requests any more; closes each connection when the last answer on it has come."""
        self._closing = True
        if self._dial is not None:
            self._dial.cancel()
        await asyncio.gather(*(connection.retire() for connection in list(self._connections)))

    async def close(self) -> None:
        """Closes all connections; what is in flight on them is lost."""
        self._closing = True
        if self._dial is not None:
            self._dial.cancel()
            await asyncio.wait([self._dial])
        for connection in list(self._connections):
            connection.close()

    def going_away(self, connection: ClientConnection) -> None:
        """The worker sends this connection away, as one that stops does; another may be had at once."""
        if not self.connected and not self._closing:
            self._dialled()

    def lost(self, connection: ClientConnection, reason: str) -> None:
        """The connection is gone."""
        if connection.pinged_too_often and self._pings:
            self._pings = False
            _log.info("worker takes no PINGs that often", worker=self.name, every=f"{_RARE_PING_SECONDS:g} s")
        known = connection in self._connections
        if known:
            self._connections.remove(connection)
        # One that was sent away has ended as announced; one never established is told by its dial.
        if known and not self._closing and not connection.sent_away:
            self._on_lost(reason)

    def _dialled(self) -> asyncio.Task[ClientConnection | None]:
        if self._dial is None or self._dial.done():
            self._dial = asyncio.get_running_loop().create_task(self._open(), name=f"dial:{self.name}")
        return self._dial

    async def _open(self) -> ClientConnection | None:
        loop = asyncio.get_running_loop()
        settings = self.settings

        connection: ClientConnection | None = None

        def make() -> ClientConnection:
            nonlocal connection
            connection = ClientConnection(
                self,
                ping_seconds=settings.ping_seconds if self._pings else _RARE_PING_SECONDS,
                ping_timeout_seconds=settings.ping_timeout_seconds,
            )
            return connection

        try:
            async with asyncio.timeout(DIAL_SECONDS):
                if self._address.startswith("unix:"):
                    _, connection = await loop.create_unix_connection(make, self._address[len("unix:") :])
                else:
                    host, _, port = self._address.rpartition(":")
                    _, connection = await loop.create_connection(make, host.strip("[]"), int(port))
                await connection.established
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            if connection is not None:
                connection.abort()
            if isinstance(error, asyncio.CancelledError):
                raise
            if not self._closing:
                self._on_lost(_why(error))
            return None
        self._connections.append(connection)
        _log.debug("connected", worker=self.name, connections=len(self._connections))
        return connection


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no HTTP/2 connection within {DIAL_SECONDS:g} s"
    return str(error) or type(error).__name__
