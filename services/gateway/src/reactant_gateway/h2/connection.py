"""What both roles of an HTTP/2 connection share: reading, flushing, flow control."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Final, Protocol, cast, final

import ngh2

from reactant_gateway.h2.grpc import Headers

STREAM_WINDOW_BYTES: Final = 256 * 1024
"""What a peer may send on one stream before we acknowledge it."""

# One stalled stream must not take the window of its neighbours, so the connection's is never the limit:
# the largest number of streams times the stream window stays below it.
CONNECTION_WINDOW_BYTES: Final = 2**31 - 1

_FLUSH_BYTES: Final = 256 * 1024
# What a read gives is taken before anything else is read, by this connection or another: one will do.
_READ: Final = bytearray(256 * 1024)
_READ_VIEW: Final = memoryview(_READ)
_WRITE_HIGH_WATER_BYTES: Final = 256 * 1024


class Acknowledges(Protocol):
    """Where bytes came from."""

    def acknowledge(self, stream: int, size: int) -> None:
        """So many bytes of `stream` have been taken."""


@final
class _Owed:
    """Bytes passed on, not yet taken from us, and whom to acknowledge them to."""

    __slots__ = ("peer", "size", "stream")

    def __init__(self, peer: Acknowledges, stream: int, size: int) -> None:
        self.peer = peer
        self.stream = stream
        self.size = size


class Connection(asyncio.BufferedProtocol, ABC):
    """One connection on the event loop; frames in, calls of the role's handlers out.

    Nothing is written at once: what a turn of the event loop produces goes out together in `flush`, and
    only while the transport takes it. Received bytes are acknowledged when whoever they were passed on to
    has taken them (`owe`), which is what stops a sender whose reader is slow.

    Attributes:
        flushes: how often `flush` has run; tells whether something is still unwritten.
        closed: the transport is gone.
    """

    def __init__(self, role: ngh2.Role, config: ngh2.Configuration, settings: dict[int, int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._h2 = ngh2.Connection(role, config)
        self._settings = settings
        self._transport: asyncio.Transport | None = None
        self._dirty = False
        self._paused = False
        # By local stream.
        self._owed: dict[int, _Owed] = {}
        self._on: dict[type[ngh2.Event], Any] = {}
        self._closing = False
        # Why we ended it.
        self._fault: str | None = None
        self.flushes = 0
        self.closed = False

    # --- of asyncio.Protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # By what TCP and Unix listeners and dialers promise; uvloop's classes are not derived from it.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_WRITE_HIGH_WATER_BYTES)
        self._h2.initiate_connection(self._settings)
        self._h2.set_local_window_size(CONNECTION_WINDOW_BYTES)
        self.flush()

    def get_buffer(self, sizehint: int) -> bytearray:
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        self.received(_READ_VIEW[:nbytes])

    def received(self, data: bytes | memoryview) -> None:
        """Takes what came, and keeps nothing of `data` itself."""
        h2 = self._h2
        try:
            h2.receive_data(data)
        except ngh2.NGH2Error as error:
            # The events before the fault count.
            self._dispatch()
            self._fault = str(error)
            self.close()
            return
        self._dispatch()
        # Neither wanting to write nor to read it is over, which `flush` sees.
        if not self._dirty and (h2.want_write or not h2.want_read):
            self._dirty = True
            self._loop.call_soon(self.flush)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.closed = True
        owed, self._owed = self._owed, {}
        for one in owed.values():
            one.peer.acknowledge(one.stream, one.size)
        if self._fault is not None:
            reason = self._fault
        else:
            reason = "closed by peer" if exc is None else str(exc) or type(exc).__name__
        self._lost(reason)

    # --- for handlers ----------------------------------------------------------------------------------

    def send_data(self, stream: int, data: bytes, end_stream: bool) -> None:
        """Queues a part of a body. A stream that is gone takes nothing, and that is no error."""
        try:
            self._h2.send_data(stream, data, end_stream=end_stream)
        except ngh2.NGH2Error:
            return
        if not self._dirty:
            self._dirty = True
            self._loop.call_soon(self.flush)

    def send_trailers(self, stream: int, headers: Headers) -> None:
        """Queues the end of a stream with `headers`."""
        try:
            self._h2.send_trailers(stream, headers)
        except ngh2.NGH2Error:
            return
        self.mark()

    def owe(self, stream: int, peer: Acknowledges, peer_stream: int, size: int) -> None:
        """Has `size` bytes acknowledged to `peer` once those queued on `stream` have been written."""
        owed = self._owed.get(stream)
        if owed is not None:
            owed.size += size
        elif self.closed:
            peer.acknowledge(peer_stream, size)
        else:
            self._owed[stream] = _Owed(peer, peer_stream, size)

    def forget(self, stream: int) -> None:
        """Acknowledges what is owed for `stream` at once: nobody will write it any more."""
        owed = self._owed.pop(stream, None)
        if owed is not None:
            owed.peer.acknowledge(owed.stream, owed.size)

    def acknowledge(self, stream: int, size: int) -> None:
        """Gives the peer its window back. Needed for every received byte, also of a stream that is gone."""
        if size and not self.closed:
            try:
                self._h2.acknowledge_received_data(size, stream)
                if not self._dirty and self._h2.want_write:
                    self.mark()
            except ngh2.NGH2Error:
                return  # it is ending on a fault of the peer

    def reset(self, stream: int, error_code: int) -> None:
        """Ends a stream at once; what is queued on it is dropped."""
        self.forget(stream)
        if not self.closed:
            try:
                self._h2.reset_stream(stream, error_code)
            except ngh2.NGH2Error:
                return
            self.mark()

    def mark(self) -> None:
        """Schedules a flush at the end of this turn of the event loop."""
        if not self._dirty:
            self._dirty = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes what is queued, as far as the transport takes it."""
        self._dirty = False
        transport, h2 = self._transport, self._h2
        if transport is None or transport.is_closing():
            return
        try:
            while not self._paused:
                data = h2.data_to_send(_FLUSH_BYTES)
                if not data:
                    break
                transport.write(data)
            over = not h2.want_read and not h2.want_write
        except ngh2.NGH2Error:
            over = True
        self.flushes += 1
        if self._owed:
            self._settle()
        self._flushed()
        if over:
            # After a GOAWAY, or because of what the peer sent.
            self._fault = self._fault or "the HTTP/2 session has ended"
            self.close()

    def close(self) -> None:
        """Writes what is queued and closes the transport."""
        if self._transport is not None and not self._closing:
            self._closing = True
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        """Closes the transport at once; `connection_lost` follows."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # --- for the roles ---------------------------------------------------------------------------------

    def _ping(self, payload: bytes) -> None:
        try:
            self._h2.ping(payload)
        except ngh2.NGH2Error as error:
            self._fault = str(error)
            self.abort()
            return
        self.mark()

    @abstractmethod
    def _lost(self, reason: str) -> None:
        """The transport is gone."""

    @abstractmethod
    def _flushed(self) -> None:
        """Something may have been written."""

    def _dispatch(self) -> None:
        on = self._on
        for event in self._h2.events():
            handler = on.get(type(event))
            if handler is not None:
                handler(event)

    def _settle(self) -> None:
        queued = self._h2.queued_body_size
        if not self._paused and not queued():
            all_owed, self._owed = self._owed, {}
            for owed in all_owed.values():
                owed.peer.acknowledge(owed.stream, owed.size)
            return
        for local, owed in list(self._owed.items()):
            left = min(owed.size, queued(local))
            taken, owed.size = owed.size - left, left
            if left == 0:
                del self._owed[local]
            owed.peer.acknowledge(owed.stream, taken)
