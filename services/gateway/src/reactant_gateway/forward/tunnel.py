"""Calls that the gateway answers itself: passed on, as they are, to the server on the private socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from reactant_gateway.h2 import grpc
from reactant_gateway.h2.grpc import Headers
from reactant_gateway.h2.server import ServerConnection
from reactant_gateway.workers.pool import WorkerLink


@final
class Tunnel:
    """One call of any kind, both ways (`ServerStream` and `ClientStream`).

    Args:
        down: the client's connection.
        stream: the call's stream there.
        local: connections to the local server, one of them with room.
        headers: passed on as they are.
        ended: the client has sent everything.
        on_end: called once, when the call is over.
    """

    __slots__ = ("_begun", "_down", "_ended", "_on_end", "_opened_at", "_opened_at_flush", "_over", "_stream",
                 "_up", "_up_stream")  # fmt: skip

    def __init__(
        self,
        down: ServerConnection,
        stream: int,
        local: WorkerLink,
        headers: Headers,
        *,
        ended: bool,
        on_end: Callable[[], None],
    ) -> None:
        self._down = down
        self._stream = stream
        self._on_end = on_end
        self._ended = ended
        self._begun = False
        self._over = False
        up = local.acquire()
        assert up is not None
        self._up = up
        self._opened_at_flush = up.flushes
        self._opened_at = asyncio.get_running_loop().time()
        try:
            self._up_stream = up.request(headers, self)
        except ConnectionError as error:
            self._up_stream = 0
            self.upstream_lost(True, str(error))
            return
        if ended:
            up.send_data(self._up_stream, b"", True)

    def request_data(self, data: bytes, ended: bool) -> None:
        """A part of the request."""
        self._ended = ended
        if self._over:
            self._down.acknowledge(self._stream, len(data))
            return
        self._up.send_data(self._up_stream, data, ended)
        self._up.owe(self._up_stream, self._down, self._stream, len(data))

    def client_gone(self) -> None:
        """The client has cancelled or lost its connection."""
        self._end(answered=False)

    def response_headers(self, headers: Headers, ended: bool) -> None:
        """The head of the response, or all of it."""
        self._begun = True
        self._down.send_response(self._stream, headers, ended)
        if ended:
            self._finish()

    def response_data(self, data: bytes, ended: bool) -> None:
        """A part of the response."""
        self._down.send_data(self._stream, data, ended)
        self._down.owe(self._stream, self._up, self._up_stream, len(data))
        if ended:
            self._finish()

    def response_trailers(self, headers: Headers) -> None:
        """The end of the response."""
        self._down.send_trailers(self._stream, headers)
        self._finish()

    def upstream_reset(self, error_code: int) -> None:
        """The local server reset the call."""
        self._fail(grpc.status_of_reset(error_code), "the call was reset")

    def upstream_lost(self, unprocessed: bool, reason: str) -> None:
        """The connection to the local server is gone."""
        self._fail(grpc.UNAVAILABLE, f"the gateway's own server is not there: {reason}")

    def _fail(self, code: int, why: str) -> None:
        if self._over:
            return
        status = grpc.status_headers(code, why)
        if self._begun:
            self._down.send_trailers(self._stream, status)
        else:
            self._down.send_response(self._stream, grpc.RESPONSE_HEADERS + status, True)
        self._finish()

    def _finish(self) -> None:
        self._down.finish(self._stream, self._ended, self._on_end)
        self._end(answered=True)

    def _end(self, *, answered: bool) -> None:
        if self._over:
            return
        self._over = True
        if answered and self._ended:
            self._up.release(self._up_stream)
        else:
            self._up.cancel(self._up_stream, opened_at_flush=self._opened_at_flush, opened_at=self._opened_at)
        if not answered:
            self._on_end()
