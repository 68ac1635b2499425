"""A worker that does as a test says, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ngh2 import Role, Setting
from services.gateway.tests.support.peer import Headers, Peer, Seen

from reactant_gateway.h2 import grpc

HEAD: Headers = ((b":status", b"200"), (b"content-type", b"application/grpc"))
NOT_STARTED: Headers = (grpc.NOT_STARTED,)


def reply(peer: Peer, seen: Seen, body: bytes = b"done", code: int = 0, extra: Headers = ()) -> None:
    """An answer of one message."""
    peer.h2.send_response(seen.id, HEAD)
    peer.h2.send_data(seen.id, grpc.framed(body))
    peer.h2.send_trailers(seen.id, grpc.status_headers(code, "", extra))
    peer.flush()


def refuse(
    peer: Peer, seen: Seen, code: int = grpc.UNAVAILABLE, extra: Headers = NOT_STARTED, *, head: bool = False
) -> None:
    """A status without a message: trailers-only, or with a HEADERS frame before it."""
    status = grpc.status_headers(code, f"status {code}", extra)
    if head:
        peer.h2.send_response(seen.id, HEAD)
        peer.h2.send_trailers(seen.id, status)
    else:
        peer.h2.send_response(seen.id, HEAD + status, end_stream=True)
    peer.flush()


def echo(peer: Peer, seen: Seen) -> None:
    """The request's message as the answer."""
    reply(peer, seen, seen.message)


class Worker:
    """Listens; `on_end` and its like are given to each connection as it comes.

    Args:
        on_end: called when a request is complete; answers `done` unless told otherwise.
        on_headers: called when it begins.
        max_streams: MAX_CONCURRENT_STREAMS.
        window: INITIAL_WINDOW_SIZE.
        peer: further arguments of `Peer`.
    """

    def __init__(
        self,
        name: str = "a",
        *,
        on_end: Callable[[Peer, Seen], None] = reply,
        on_headers: Callable[[Peer, Seen], None] | None = None,
        max_streams: int | None = None,
        window: int | None = None,
        **peer: Any,
    ) -> None:
        self.name = name
        self.on_end = on_end
        self.on_headers = on_headers
        self.settings: dict[int, int] = {}
        if max_streams is not None:
            self.settings[int(Setting.MAX_CONCURRENT_STREAMS)] = max_streams
        if window is not None:
            self.settings[int(Setting.INITIAL_WINDOW_SIZE)] = window
        self.peers: list[Peer] = []
        self.address = ""
        self._options = peer
        self._server: asyncio.Server | None = None
        self._port = 0

    async def start(self, path: str | None = None) -> None:
        """Listens on loopback, on the port it had before, or at a Unix socket."""
        loop = asyncio.get_running_loop()
        if path is not None:
            self._server = await loop.create_unix_server(self._make, path)
            self.address = f"unix:{path}"
        else:
            self._server = await loop.create_server(self._make, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]
            self.address = f"127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Refuses connections from now on and resets those it has."""
        if self._server is not None:
            self._server.close()
            for peer in self.peers:
                peer.abort()
            await self._server.wait_closed()
            self._server = None

    def _make(self) -> Peer:
        peer = Peer(Role.SERVER, self.settings, **self._options)
        peer.on_end = self._end
        if self.on_headers is not None:
            peer.on_headers = self.on_headers
        self.peers.append(peer)
        return peer

    def _end(self, peer: Peer, seen: Seen) -> None:
        # Looked up at each end: a test may put another in its place.
        self.on_end(peer, seen)

    @property
    def peer(self) -> Peer:
        """The latest connection."""
        return self.peers[-1]

    @property
    def requests(self) -> list[Seen]:
        """All requests of all connections, in order."""
        return [seen for peer in self.peers for seen in peer.streams.values()]
