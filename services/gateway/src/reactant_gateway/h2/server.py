"""Connections that clients open to us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, final

import ngh2
from ngh2 import Setting

from reactant_gateway.h2.connection import STREAM_WINDOW_BYTES, Connection
from reactant_gateway.h2.grpc import NO_ERROR, Headers

MAX_STREAMS: Final = 1024
"""Requests one client connection may have open at a time."""

MAX_HEADER_BYTES: Final = 16 * 1024
"""Largest header list of a request that is taken, counted as RFC 9113 does; the rest is refused."""

# A header list beyond this ends the connection, because the library gives up on it.
_HARD_HEADER_BYTES: Final = 64 * 1024

_FRAME_BYTES: Final = 64 * 1024
_GREETING_SECONDS: Final = 10.0
_KEEPALIVE_SECONDS: Final = 60.0
_KEEPALIVE_TIMEOUT_SECONDS: Final = 20.0
_DRAIN_PING: Final = b"drained?"

_CONFIG: Final = ngh2.Configuration(
    auto_window_update=False,
    # Clients may cancel a great deal: the library's own limit ends a connection at the 1,001st.
    stream_reset_rate_limit=(20_000, 2_000),
    max_inbound_header_list_size=_HARD_HEADER_BYTES,
)
_SETTINGS: Final[dict[int, int]] = {
    int(Setting.MAX_CONCURRENT_STREAMS): MAX_STREAMS,
    int(Setting.INITIAL_WINDOW_SIZE): STREAM_WINDOW_BYTES,
    int(Setting.MAX_FRAME_SIZE): _FRAME_BYTES,
    int(Setting.MAX_HEADER_LIST_SIZE): MAX_HEADER_BYTES,
}


def _nothing() -> None:
    pass


class ServerStream(Protocol):
    """What answers one request."""

    def request_data(self, data: bytes, ended: bool) -> None:
        """A part of the body, to be acknowledged; `ended` with the last, which may be empty."""

    def client_gone(self) -> None:
        """The client reset the stream or its connection is gone: nothing can be answered any more."""


class Acceptor(Protocol):
    """What takes requests off all connections."""

    def connected(self, connection: ServerConnection) -> None:
        """A client has connected."""

    def disconnected(self, connection: ServerConnection) -> None:
        """Its connection is gone; its streams have been told."""

    def request(
        self, connection: ServerConnection, stream: int, headers: Headers, ended: bool
    ) -> ServerStream | None:
        """A request's headers; whoever takes the rest, None when it has been answered already."""


@final
class ServerConnection(Connection):
    """A client's connection.

    Attributes:
        in_flight: requests of it that count against the cap; kept by whoever admits them.
        watches: health watches open on it; kept by whoever lets them in.
        open: takes new requests; not after the second GOAWAY.
    """

    def __init__(self, acceptor: Acceptor) -> None:
        super().__init__(ngh2.Role.SERVER, _CONFIG, _SETTINGS)
        self._acceptor = acceptor
        self._streams: dict[int, ServerStream] = {}
        # Answered before the client had sent everything: reset once the answer is written.
        self._cut: list[int] = []
        # Responses complete here and not yet with the transport.
        self._leaving: dict[int, Callable[[], None]] = {}
        self._draining = False
        self._greeted = False
        # When the client last took something of an answer that waits, and how much of all of them waited.
        self._taken_at = self._loop.time()
        self._waited = 0
        self._last_heard = self._loop.time()
        self._keepalive = self._loop.call_later(_GREETING_SECONDS, self._check_alive)
        self.in_flight = 0
        self.watches = 0
        self.open = True
        self._on = {
            ngh2.RequestReceived: self._request,
            ngh2.DataReceived: self._data,
            ngh2.TrailersReceived: self._trailers,
            ngh2.StreamReset: self._stream_gone,
            ngh2.StreamClosed: self._stream_gone,
            ngh2.PingAcknowledged: self._pong,
            ngh2.SettingsReceived: self._settings_received,
        }

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._acceptor.connected(self)

    def received(self, data: bytes | memoryview) -> None:
        self._last_heard = self._loop.time()
        super().received(data)

    # --- for handlers ----------------------------------------------------------------------------------

    def send_response(self, stream: int, headers: Headers, end_stream: bool) -> None:
        """Queues the head of a response, or all of it (trailers-only)."""
        try:
            self._h2.send_response(stream, headers, end_stream=end_stream)
        except ngh2.NGH2Error:
            return
        if not self._dirty:
            self._dirty = True
            self._loop.call_soon(self.flush)

    def finish(self, stream: int, request_ended: bool, left: Callable[[], None] = _nothing) -> None:
        """The response is complete. What the client still sends is stopped once the response is written.

        `left` is called when the response has been handed to the transport, or never can be.
        """
        self._streams.pop(stream, None)
        if self.closed:
            left()
            return
        if not self._leaving:
            self._taken_at = self._loop.time()
        self._leaving[stream] = left
        if not request_ended:
            self._cut.append(stream)
        self.mark()

    def drain(self) -> None:
        """Tells the client to send new requests elsewhere; closes when the last answer is written.

        Two GOAWAYs: the first announces, the second, a round trip later, names the last request taken, so
        that none is lost on its way (RFC 9113, section 6.8).
        """
        if self.closed or self._draining:
            return
        self._draining = True
        try:
            self._h2.send_shutdown_notice()
        except ngh2.NGH2Error:
            return
        self._ping(_DRAIN_PING)

    # --- events ----------------------------------------------------------------------------------------

    def _request(self, event: ngh2.RequestReceived) -> None:
        stream = event.stream_id
        handler = self._acceptor.request(self, stream, event.headers, event.end_stream)
        if handler is not None:
            self._streams[stream] = handler

    def _data(self, event: ngh2.DataReceived) -> None:
        handler = self._streams.get(event.stream_id)
        if handler is not None:
            handler.request_data(event.data, event.end_stream)
        else:
            self.acknowledge(event.stream_id, len(event.data))

    def _trailers(self, event: ngh2.TrailersReceived) -> None:
        handler = self._streams.get(event.stream_id)
        if handler is not None:
            handler.request_data(b"", True)

    def _stream_gone(self, event: ngh2.StreamReset | ngh2.StreamClosed) -> None:
        handler = self._streams.pop(event.stream_id, None)
        left = self._leaving.pop(event.stream_id, None)
        if handler is not None:
            self.forget(event.stream_id)
            handler.client_gone()
        elif type(event) is ngh2.StreamReset:
            self.forget(event.stream_id)
        if left is not None:
            left()

    def _settings_received(self, event: ngh2.SettingsReceived) -> None:
        self._greeted = True

    def _pong(self, event: ngh2.PingAcknowledged) -> None:
        if event.opaque_data == _DRAIN_PING and self._draining:
            self.open = False
            try:
                self._h2.send_goaway(NO_ERROR)
            except ngh2.NGH2Error:
                return
            self.mark()

    def _flushed(self) -> None:
        # Resetting would drop what is queued.
        if self._cut and not self._paused:
            self._cut, waiting = [], self._cut
            for stream in waiting:
                if self._h2.queued_body_size(stream):
                    self._cut.append(stream)
                else:
                    self.reset(stream, NO_ERROR)
        if self._leaving:
            # The streams that this flush has closed.
            self._dispatch()
            waits = self._h2.queued_body_size()
            if waits < self._waited or not waits:
                self._taken_at = self._loop.time()
            self._waited = waits

    def _lost(self, reason: str) -> None:
        self._keepalive.cancel()
        streams, self._streams = self._streams, {}
        for handler in streams.values():
            handler.client_gone()
        leaving, self._leaving = self._leaving, {}
        for left in leaving.values():
            left()
        self._acceptor.disconnected(self)

    def _check_alive(self) -> None:
        now = self._loop.time()
        silent = now - self._last_heard
        if not self._greeted:
            self._fault = f"no HTTP/2 within {_GREETING_SECONDS:g} s"
            self.abort()
            return
        if self._leaving and now - self._taken_at >= _KEEPALIVE_SECONDS:
            self._fault = f"no answer taken for {_KEEPALIVE_SECONDS:g} s"
            self.abort()
            return
        if silent >= _KEEPALIVE_SECONDS + _KEEPALIVE_TIMEOUT_SECONDS:
            self.abort()
            return
        wait = _KEEPALIVE_SECONDS - silent
        if silent >= _KEEPALIVE_SECONDS:
            self._ping(b"alive?\0\0")
            wait = _KEEPALIVE_TIMEOUT_SECONDS
        self._keepalive = self._loop.call_later(max(wait, 1.0), self._check_alive)
