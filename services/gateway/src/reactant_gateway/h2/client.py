"""Connections that we open to a worker."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol, final

import ngh2
from ngh2 import Setting

from reactant_gateway.h2.connection import STREAM_WINDOW_BYTES, Connection
from reactant_gateway.h2.grpc import CANCEL, ENHANCE_YOUR_CALM, NO_ERROR, REFUSED_STREAM, Headers

_CONFIG: Final = ngh2.Configuration(auto_window_update=False)
_SETTINGS: Final[dict[int, int]] = {
    int(Setting.ENABLE_PUSH): 0,
    int(Setting.INITIAL_WINDOW_SIZE): STREAM_WINDOW_BYTES,
    int(Setting.MAX_FRAME_SIZE): 64 * 1024,
}
# pygrpc_native 0.5.0 ends a connection on about 30 requests reset before it has taken them up. A worker that
# stalls takes up nothing, so the next few resets wait until it has answered a PING sent behind the last.
_RESET_AFTER_SECONDS: Final = 0.005
_RESETS_A_FLUSH: Final = 16
_PING: Final = b"there?\0\0"
_RESETS_PING: Final = b"resets?\0"


class ClientStream(Protocol):
    """What wants the answer to one request."""

    def response_headers(self, headers: Headers, ended: bool) -> None:
        """The head of the response, or all of it (trailers-only) when `ended`."""

    def response_data(self, data: bytes, ended: bool) -> None:
        """A part of the body, to be acknowledged."""

    def response_trailers(self, headers: Headers) -> None:
        """The end of the response."""

    def upstream_reset(self, error_code: int) -> None:
        """The worker reset the stream."""

    def upstream_lost(self, unprocessed: bool, reason: str) -> None:
        """The connection will not answer; `unprocessed` when the worker said that it never began."""


class ConnectionOwner(Protocol):
    """What keeps the connections of one worker."""

    def going_away(self, connection: ClientConnection) -> None:
        """The worker takes no new requests on this connection; those begun go on."""

    def lost(self, connection: ClientConnection, reason: str) -> None:
        """The connection is gone; its streams have been told."""


@final
class ClientConnection(Connection):
    """A connection to a worker.

    Attributes:
        established: done when the worker's SETTINGS have come, failed when the connection was lost before.
        open_streams: requests the worker counts as open.
        usable: takes new requests (established, not going away).
        sent_away: the worker has announced the end of this connection (GOAWAY).
        pinged_too_often: it ended the connection because of that, as gRPC's own servers do by default.
    """

    def __init__(self, owner: ConnectionOwner, *, ping_seconds: float, ping_timeout_seconds: float) -> None:
        super().__init__(ngh2.Role.CLIENT, _CONFIG, _SETTINGS)
        self._owner = owner
        # None: cancelled by us, and its reset not yet sent.
        self._streams: dict[int, ClientStream | None] = {}
        self._resets: deque[tuple[float, int]] = deque()
        self._reset_timer: asyncio.TimerHandle | None = None
        self._resets_unanswered = False
        self._ping_seconds = ping_seconds
        self._ping_timeout_seconds = ping_timeout_seconds
        self._pinged_at: float | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._max_streams = 0
        self._gone = asyncio.Event()
        self.established: asyncio.Future[None] = self._loop.create_future()
        self.usable = False
        self.sent_away = False
        self.pinged_too_often = False
        self._on = {
            ngh2.ResponseReceived: self._response,
            ngh2.DataReceived: self._data,
            ngh2.TrailersReceived: self._trailers,
            ngh2.StreamReset: self._stream_reset,
            ngh2.StreamClosed: self._stream_closed,
            ngh2.SettingsReceived: self._settings_received,
            ngh2.GoAwayReceived: self._goaway,
            ngh2.PingAcknowledged: self._pong,
        }

    # --- for handlers ----------------------------------------------------------------------------------

    @property
    def open_streams(self) -> int:
        """Requests the worker counts as open."""
        return len(self._streams)

    @property
    def has_room(self) -> bool:
        """A request would be sent now and not queue behind the worker's limit of streams."""
        return self.usable and len(self._streams) < self._max_streams

    @property
    def crowded(self) -> bool:
        """Half of the streams that the worker allows are open."""
        return len(self._streams) * 2 >= self._max_streams

    def request(self, headers: Headers, handler: ClientStream) -> int:
        """Queues the head of a request and returns its stream.

        Raises:
            ConnectionError: it takes no new requests.
        """
        try:
            stream = self._h2.send_request(headers)
        except ngh2.NGH2Error as error:
            self._retire()
            raise ConnectionError(str(error)) from error
        self._streams[stream] = handler
        if not self._dirty:
            self._dirty = True
            self._loop.call_soon(self.flush)
        return stream

    def cancel(self, stream: int, *, opened_at_flush: int, opened_at: float) -> None:
        """Gives a request up: without a trace while it is unwritten, else by a reset that is paced.

        Args:
            stream: what `request` returned.
            opened_at_flush: `flushes` when it was opened.
            opened_at: the loop's time then, seconds.
        """
        if self._streams.get(stream) is None:
            return
        self.forget(stream)
        if self.flushes == opened_at_flush:
            del self._streams[stream]
            self.reset(stream, CANCEL)
            return
        self._streams[stream] = None
        self._resets.append((opened_at + _RESET_AFTER_SECONDS, stream))
        if self._reset_timer is None and not self._resets_unanswered:
            self._reset_timer = self._loop.call_at(self._resets[0][0], self._send_resets)

    def is_unsent(self, stream: int, *, marked_at_flush: int) -> bool:
        """Whether a request queued until `flushes` was `marked_at_flush` is not yet all with the socket."""
        return self.flushes == marked_at_flush or self._h2.queued_body_size(stream) > 0

    async def retire(self) -> None:
        """Takes no requests any more; returns when the last has been answered and the transport is gone."""
        self.usable = False
        self.mark()
        await self._gone.wait()

    # --- events ----------------------------------------------------------------------------------------

    def _response(self, event: ngh2.ResponseReceived) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            stream.response_headers(event.headers, event.end_stream)

    def _data(self, event: ngh2.DataReceived) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            stream.response_data(event.data, event.end_stream)
        else:
            self.acknowledge(event.stream_id, len(event.data))

    def _trailers(self, event: ngh2.TrailersReceived) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            stream.response_trailers(event.headers)

    def _stream_reset(self, event: ngh2.StreamReset) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            self._streams[event.stream_id] = None
            self.forget(event.stream_id)
            stream.upstream_reset(event.error_code)

    def _stream_closed(self, event: ngh2.StreamClosed) -> None:
        # Of a stream that ended well its handler has let go (`release`); what is still held has failed
        # here, because of a GOAWAY or because the library could not send it.
        stream = self._streams.pop(event.stream_id, None)
        if stream is not None:
            self.forget(event.stream_id)
            stream.upstream_lost(event.error_code == REFUSED_STREAM, "the worker closed the stream")

    def release(self, stream: int) -> None:
        """The handler has all of the answer and wants no more of this stream."""
        if stream in self._streams:
            self._streams[stream] = None

    def _settings_received(self, event: ngh2.SettingsReceived) -> None:
        limit = event.settings.get(int(Setting.MAX_CONCURRENT_STREAMS))
        if limit is not None:
            self._max_streams = limit
        if not self.established.done():
            if limit is None:
                self._max_streams = 2**31 - 1
            self.usable = True
            self.established.set_result(None)
            self._ping_timer = self._loop.call_later(self._ping_seconds, self._check_alive)

    def _goaway(self, event: ngh2.GoAwayReceived) -> None:
        self.sent_away = event.error_code == NO_ERROR
        self.pinged_too_often = event.error_code == ENHANCE_YOUR_CALM
        if not self.sent_away:
            self._fault = f"the worker ended it with HTTP/2 error {event.error_code}"
        self._retire()

    def _retire(self) -> None:
        if self.usable:
            self.usable = False
            self._owner.going_away(self)
            self.mark()

    def _check_alive(self) -> None:
        now = self._loop.time()
        if self._pinged_at is None:
            self._pinged_at = now
            self._ping(_PING)
        elif now - self._pinged_at >= self._ping_timeout_seconds:
            self._fault = f"no answer to a PING for {self._ping_timeout_seconds:g} s"
            self.abort()
            return
        wait = self._ping_seconds
        if self._pinged_at is not None:
            wait = min(wait, self._pinged_at + self._ping_timeout_seconds - now)
        self._ping_timer = self._loop.call_later(max(wait, 0.01), self._check_alive)

    def _pong(self, event: ngh2.PingAcknowledged) -> None:
        if event.opaque_data != _RESETS_PING:
            self._pinged_at = None
            return
        self._resets_unanswered = False
        if self._resets and self._reset_timer is None:
            self._send_resets()

    def _send_resets(self) -> None:
        self._reset_timer = None
        now = self._loop.time()
        sent = 0
        while self._resets and sent < _RESETS_A_FLUSH and self._resets[0][0] <= now:
            _, stream = self._resets.popleft()
            # Counted out at once: its reset is written before any later request.
            if stream in self._streams:
                del self._streams[stream]
                self.reset(stream, CANCEL)
                sent += 1
        if self.closed:
            return
        if sent:
            self._resets_unanswered = True
            self._ping(_RESETS_PING)
        elif self._resets:
            self._reset_timer = self._loop.call_at(self._resets[0][0], self._send_resets)

    def _flushed(self) -> None:
        if not self.usable:
            # Requests that a GOAWAY caught before they were written have been closed by the library.
            self._dispatch()
            if not self._streams and self.established.done():
                self.close()

    def _lost(self, reason: str) -> None:
        self.usable = False
        self._gone.set()
        for timer in (self._ping_timer, self._reset_timer):
            if timer is not None:
                timer.cancel()
        if not self.established.done():
            self.established.set_exception(ConnectionError(reason))
            self.established.exception()  # whoever dialled may have given up
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            if stream is not None:
                stream.upstream_lost(False, reason)
        self._owner.lost(self, reason)
