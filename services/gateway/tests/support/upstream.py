"""Connections to a scripted worker, without the rest of a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from services.gateway.tests.support.peer import Headers
from services.gateway.tests.support.rig import no_faults
from services.gateway.tests.support.worker import Worker

from reactant_gateway.h2.client import ClientConnection

REQUEST: Headers = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/s/m"),
    (b":authority", b"worker"),
    (b"te", b"trailers"),
)


class Answer:
    """A `ClientStream` that remembers."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.headers: Headers = ()
        self.trailers: Headers = ()
        self.body = b""
        self.over = asyncio.Event()
        self.release: Callable[[], None] = lambda: None

    def response_headers(self, headers: Headers, ended: bool) -> None:
        self.headers = headers
        self._say("headers", ended)

    def response_data(self, data: bytes, ended: bool) -> None:
        self.body += data
        self._say("data", ended)

    def response_trailers(self, headers: Headers) -> None:
        self.trailers = headers
        self.release()
        self._say("trailers", True)

    def upstream_reset(self, error_code: int) -> None:
        self._say(f"reset {error_code}", True)

    def upstream_lost(self, unprocessed: bool, reason: str) -> None:
        self._say("unprocessed" if unprocessed else f"lost: {reason}", True)

    def _say(self, what: str, over: bool) -> None:
        self.told.append(what)
        if over:
            self.over.set()


class Owner:
    """A `ConnectionOwner` that remembers."""

    def __init__(self) -> None:
        self.away = 0
        self.reasons: list[str] = []
        self.over = asyncio.Event()

    def going_away(self, connection: ClientConnection) -> None:
        self.away += 1

    def lost(self, connection: ClientConnection, reason: str) -> None:
        self.reasons.append(reason)
        self.over.set()


@asynccontextmanager
async def upstream(
    worker: Worker, *, ping_seconds: float = 3600.0, ping_timeout_seconds: float = 2.0, establish: bool = True
) -> AsyncIterator[tuple[ClientConnection, Owner]]:
    """Starts `worker` and connects to it."""
    await worker.start()
    owner = Owner()
    with no_faults():
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: ClientConnection(
                owner, ping_seconds=ping_seconds, ping_timeout_seconds=ping_timeout_seconds
            ),
            "127.0.0.1",
            int(worker.address.rpartition(":")[2]),
        )
        try:
            if establish:
                await connection.established
            yield connection, owner
        finally:
            connection.abort()
            await worker.stop()
            await owner.over.wait()
