"""ModelStreamInfer, ended here: each message is a ModelInfer of its own, the answers go back in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, final

from reactant_core.kserve.stream import MAX_OUTSTANDING, STREAM_KEY, in_band_error
from reactant_gateway.forward.exchange import Exchange
from reactant_gateway.forward.forwarder import Forwarder
from reactant_gateway.h2 import grpc
from reactant_gateway.h2.connection import STREAM_WINDOW_BYTES, Acknowledges
from reactant_gateway.h2.grpc import Headers
from reactant_gateway.h2.server import ServerConnection

_STREAM: Final = (STREAM_KEY.encode("ascii"), b"1")
# The length is of the whole stream; a compressed answer could not be put behind another length prefix.
_NOT_PASSED_ON: Final = (b"content-length", b"grpc-accept-encoding")
_INFER_RESPONSE: Final = b"\x12"  # field 2 of ModelStreamInferResponse, length-delimited


@final
class StreamExchange:
    """One ModelStreamInfer (`ServerStream`).

    Args:
        forwarder: what exchanges share.
        down: the client's connection.
        stream: the call's stream there.
        headers: what is passed on to a worker with each message, `:path` of ModelInfer among them.
        encoding: `grpc-encoding` of the messages.
        timeout: seconds until the client's deadline.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        down: ServerConnection,
        stream: int,
        headers: Headers,
        *,
        encoding: bytes,
        timeout: float | None,
    ) -> None:
        self._fw = forwarder
        self._down = down
        self._stream = stream
        self._headers = (*(header for header in headers if header[0] not in _NOT_PASSED_ON), _STREAM)
        self._encoding = encoding
        self._deadline = None if timeout is None else perf_counter() + timeout
        self._timer: asyncio.TimerHandle | None = None
        if timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout, self._expired)
        self._places: deque[_Place] = deque()
        self._open: _Place | None = None
        # Received and not yet given to a message; acknowledged when it is.
        self._pending = b""
        self._reading = False
        self._missing = 0
        # Answers that the client's connection has not taken yet, in bytes.
        self._unwritten = 0
        self._sent_bytes = 0
        self._gone_bytes = 0
        # With each answer sent, in order: the bytes sent up to its end, and whom to tell when it has left.
        self._leaving: deque[tuple[int, Callable[[], None]]] = deque()
        self._ended = False
        self._begun = False
        self._over = False
        self._why: tuple[int, str] | None = None
        forwarder.streams.add(self)

    def request_data(self, data: bytes, ended: bool) -> None:
        """A part of the stream of messages."""
        self._ended = self._ended or ended
        if self._why is not None or self._over:
            self._down.acknowledge(self._stream, len(data))
        else:
            self._pending += data
            self._read()
        self._settle()

    def client_gone(self) -> None:
        """The client has cancelled or lost its connection."""
        self._end()

    def drain(self) -> None:
        """Reads no further; ends with UNAVAILABLE after the answers to what has been read."""
        self._stop_reading(grpc.UNAVAILABLE, "the server is shutting down")
        self._drop_pending()
        self._settle()

    def acknowledge(self, stream: int, size: int) -> None:
        """So many bytes of answers have left (`Acknowledges`)."""
        stalled = self.stalled
        self._unwritten -= size
        self._gone_bytes += size
        while self._leaving and self._leaving[0][0] <= self._gone_bytes:
            self._leaving.popleft()[1]()
        if stalled and not self._over and not self.stalled:
            if self._places:
                self._places[0].come_first()
            # Not at once: the connection is in the middle of something.
            asyncio.get_running_loop().call_soon(self.answered)

    @property
    def stalled(self) -> bool:
        """The client has not taken the answers there are: no more are gathered."""
        return self._unwritten >= STREAM_WINDOW_BYTES

    # --- messages in -----------------------------------------------------------------------------------

    def _read(self) -> None:
        """Gives what has come to the messages it belongs to."""
        if self._reading:
            # An answer that came at once: the loop below goes on by itself.
            return
        self._reading = True
        data, at = self._pending, 0
        while self._why is None:
            if self._open is None:
                if len(data) - at < grpc.PREFIX_BYTES or self._full:
                    break
                size = int.from_bytes(data[at + 1 : at + grpc.PREFIX_BYTES], "big")
                if size > self._fw.limits.max_request_bytes:
                    limit = self._fw.limits.max_request_bytes
                    self._stop_reading(grpc.RESOURCE_EXHAUSTED, f"a message is larger than {limit} bytes")
                    break
                self._missing = grpc.PREFIX_BYTES + size
                self._open = self._begin()
            elif at == len(data):
                break
            part = data[at : at + self._missing]
            at += len(part)
            self._missing -= len(part)
            place, whole = self._open, self._missing == 0
            if whole:
                self._open = None
            place.request_data(part, whole)
            self._settle()
        self._pending = data[at:]
        self._reading = False
        if self._why is not None:
            self._drop_pending()
            return
        inside = self._open is not None or (self._pending and not self._full)
        if self._ended and inside:
            self._stop_reading(grpc.INTERNAL, "the stream ends inside a message")
            self._drop_pending()

    @property
    def _full(self) -> bool:
        return len(self._places) >= MAX_OUTSTANDING or self.stalled

    def _begin(self) -> _Place:
        place = _Place(self, self._down, self._stream)
        self._places.append(place)
        if len(self._places) == 1:
            place.come_first()
        if not self._fw.admit(self._down):
            place.refuse("the gateway has its full number of requests in flight")
            return place
        left = None if self._deadline is None else max(self._deadline - perf_counter(), 1e-6)
        place.exchange = Exchange(
            self._fw, place, 0, self._headers, encoding=self._encoding, timeout=left, counted=self._down
        )
        return place

    def _stop_reading(self, code: int, why: str) -> None:
        if self._why is not None:
            return
        self._why = (code, why)
        if self._open is not None:
            place, self._open = self._open, None
            place.abandon()
            if place in self._places:
                self._places.remove(place)
                if self._places:
                    self._places[0].come_first()

    def _drop_pending(self) -> None:
        pending, self._pending = self._pending, b""
        self._down.acknowledge(self._stream, len(pending))

    # --- answers out -----------------------------------------------------------------------------------

    def answered(self) -> None:
        """One of the places has its answer, or there is room for one more."""
        if not self._over and not self._reading:
            self._settle()
            if self._pending and self._why is None:
                self._read()
                self._settle()

    def _settle(self) -> None:
        """Sends the answers whose turn it is, and the end after the last."""
        while self._places and self._places[0].done and not self._over:
            if self.stalled:
                return
            place = self._places.popleft()
            if self._places:
                self._places[0].come_first()
            self._send_head()
            answer = grpc.framed(place.message())
            self._unwritten += len(answer)
            self._sent_bytes += len(answer)
            left, place.left = place.left, None
            if left is not None:
                self._leaving.append((self._sent_bytes, left))
            self._down.send_data(self._stream, answer, False)
            self._down.owe(self._stream, self, 0, len(answer))
        if self._over or self._places:
            return
        if self._why is not None:
            self._finish(*self._why)
        elif self._ended and not self._pending:
            self._finish(grpc.OK, "")

    def _send_head(self) -> None:
        if not self._begun:
            self._begun = True
            self._down.send_response(self._stream, grpc.RESPONSE_HEADERS, False)

    def _finish(self, code: int, why: str) -> None:
        status = grpc.status_headers(code, why)
        if self._begun:
            self._down.send_trailers(self._stream, status)
        else:
            self._down.send_response(self._stream, grpc.RESPONSE_HEADERS + status, True)
        self._down.finish(self._stream, self._ended)
        self._end()

    def _expired(self) -> None:
        if not self._over:
            self._finish(grpc.DEADLINE_EXCEEDED, "the deadline has passed")

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._fw.streams.discard(self)
        if not self._reading:
            self._drop_pending()
        for place in self._places:
            place.abandon()
        self._places.clear()


@final
class _Place:
    """Where the answer to one message is gathered (`Downstream` of its exchange)."""

    def __init__(self, owner: StreamExchange, down: ServerConnection, stream: int) -> None:
        self._owner = owner
        self._down = down
        self._down_stream = stream
        self._body: list[bytes] = []
        self._code = grpc.UNKNOWN
        self._detail = ""
        self._abandoned = False
        self._first = False
        # Upstream bytes that wait for the answers before this one.
        self._held: list[tuple[Acknowledges, int, int]] = []
        self.left: Callable[[], None] | None = None
        self.exchange: Exchange | None = None
        self.done = False

    def request_data(self, data: bytes, ended: bool) -> None:
        if self.exchange is None:
            self.acknowledge(0, len(data))
        else:
            self.exchange.request_data(data, ended)

    def refuse(self, why: str) -> None:
        self._code, self._detail, self.done = grpc.RESOURCE_EXHAUSTED, why, True

    def abandon(self) -> None:
        self._abandoned = True
        self.come_first()
        if self.exchange is not None:
            self.exchange.client_gone()
        if self.left is not None:
            self.left()

    def come_first(self) -> None:
        """The answer is the next to be sent: all of it may come, once the client takes what there is."""
        self._first = True
        if self._owner.stalled and not self._abandoned:
            return
        held, self._held = self._held, []
        for peer, stream, size in held:
            peer.acknowledge(stream, size)

    def message(self) -> bytes:
        """The ModelStreamInferResponse."""
        body = b"".join(self._body)
        if self._code == grpc.OK and body[:1] == b"\0":
            inner = memoryview(body)[grpc.PREFIX_BYTES :]
            return b"".join((_INFER_RESPONSE, _varint(len(inner)), inner))
        exchange = self.exchange
        model = "" if exchange is None else exchange.model
        request_id = "" if exchange is None else exchange.request_id.decode("utf-8", "replace")
        why = self._detail or "the worker's answer cannot be passed on"
        return in_band_error(model, request_id, why).SerializeToString()

    # --- Downstream ------------------------------------------------------------------------------------

    def send_response(self, stream: int, headers: Headers, end_stream: bool) -> None:
        if end_stream:
            self.send_trailers(stream, headers)

    def send_data(self, stream: int, data: bytes, end_stream: bool) -> None:
        self._body.append(data)

    def send_trailers(self, stream: int, headers: Headers) -> None:
        code = grpc.status_of(headers)
        self._code = grpc.UNKNOWN if code is None else code
        self._detail = grpc.message_of(headers)

    def finish(self, stream: int, request_ended: bool, left: Callable[[], None]) -> None:
        self.done = True
        self.left = left
        if not self._abandoned:
            self._owner.answered()

    def owe(self, stream: int, peer: Acknowledges, peer_stream: int, size: int) -> None:
        # Gathered here. Of an answer that must wait for others no more than a window comes.
        if self._first and not self._owner.stalled:
            peer.acknowledge(peer_stream, size)
        else:
            self._held.append((peer, peer_stream, size))

    def acknowledge(self, stream: int, size: int) -> None:
        self._down.acknowledge(self._down_stream, size)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
