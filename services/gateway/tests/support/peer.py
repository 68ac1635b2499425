"""The other side of an HTTP/2 connection, told by a test what to do and keeping a record of what it saw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import ngh2
from ngh2 import Role, Setting

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 6, 7, 8

Headers = tuple[tuple[bytes, bytes], ...]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame, as it goes over the wire."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


@dataclass
class Frame:
    """One frame received: `at` in the event loop's time, `read` the number of the read it came in."""

    kind: int
    flags: int
    stream: int
    payload: bytes
    at: float
    read: int


@dataclass
class Seen:
    """What came of one stream."""

    id: int
    headers: Headers = ()
    trailers: Headers = ()
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None
    closed: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def header(self, name: bytes) -> bytes | None:
        """The first value called `name`, of the trailers first."""
        return next((value for key, value in (*self.trailers, *self.headers) if key == name), None)

    @property
    def code(self) -> int | None:
        """`grpc-status`."""
        value = self.header(b"grpc-status")
        return None if value is None else int(value)

    @property
    def message(self) -> bytes:
        """The first message of the body."""
        return bytes(self.body[5:])


class Peer(asyncio.Protocol):
    """One connection, in either role.

    Attributes:
        h2: the library's connection, for what no method here does.
        auto_ack: received bytes go back to the sender's windows at once.
        frames: everything received.
        streams: by id.
        on_headers, on_data, on_end: called with the peer and the stream.
    """

    def __init__(
        self,
        role: Role,
        settings: dict[int, int] | None = None,
        *,
        preface: bool = True,
        auto_ack: bool = True,
    ) -> None:
        self.h2 = ngh2.Connection(
            role,
            ngh2.Configuration(
                auto_window_update=False,
                stream_reset_rate_limit=(1 << 30, 1 << 30),
                max_send_header_block_length=1 << 20,
            ),
        )
        self.role = role
        self.settings = {int(Setting.MAX_CONCURRENT_STREAMS): 1 << 20, **(settings or {})}
        self.preface = preface
        self.auto_ack = auto_ack
        self.transport: Any = None
        self.frames: list[Frame] = []
        self.streams: dict[int, Seen] = {}
        self.goaways: list[ngh2.GoAwayReceived] = []
        self.pongs = 0
        self.received = 0
        self.reads = 0
        self.closed = asyncio.Event()
        self.on_headers: Callable[[Peer, Seen], None] = lambda peer, seen: None
        self.on_data: Callable[[Peer, Seen], None] = lambda peer, seen: None
        self.on_end: Callable[[Peer, Seen], None] = lambda peer, seen: None
        self._unparsed = bytearray()
        self._skip = len(PREFACE) if role is Role.SERVER else 0

    # --- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.preface:
            self.start()

    def start(self) -> None:
        """Speaks HTTP/2; done by itself unless `preface` is off."""
        self.h2.initiate_connection(self.settings)
        self.h2.set_local_window_size(2**31 - 1)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        self._log(data)
        try:
            self.h2.receive_data(data)
        except ngh2.NGH2Error:
            return
        for event in self.h2.events():
            self._event(event)
        self.flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.closed.set()
        for seen in self.streams.values():
            seen.over.set()

    def _log(self, data: bytes) -> None:
        self._unparsed += data
        if self._skip:
            if len(self._unparsed) < self._skip:
                return
            del self._unparsed[: self._skip]
            self._skip = 0
        now = asyncio.get_running_loop().time()
        while len(self._unparsed) >= 9:
            head = self._unparsed
            size = int.from_bytes(head[:3], "big")
            if len(head) < 9 + size:
                return
            stream = int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
            # Bodies are kept in `Seen`.
            payload = b"" if head[3] == DATA else bytes(head[9 : 9 + size])
            self.frames.append(Frame(head[3], head[4], stream, payload, now, self.reads))
            del self._unparsed[: 9 + size]

    def _event(self, event: ngh2.Event) -> None:
        match event:
            case ngh2.RequestReceived() | ngh2.ResponseReceived():
                seen = self.streams.setdefault(event.stream_id, Seen(event.stream_id))
                seen.headers = event.headers
                self.on_headers(self, seen)
                if event.end_stream:
                    self._ended(seen)
            case ngh2.DataReceived():
                seen = self.streams[event.stream_id]
                seen.body += event.data
                self.received += len(event.data)
                if self.auto_ack and event.data:
                    # Nothing is left to say on a connection that ends with this stream.
                    with suppress(ngh2.NGH2Error):
                        self.h2.acknowledge_received_data(len(event.data), event.stream_id)
                self.on_data(self, seen)
                if event.end_stream:
                    self._ended(seen)
            case ngh2.TrailersReceived():
                seen = self.streams[event.stream_id]
                seen.trailers = event.headers
                self._ended(seen)
            case ngh2.StreamReset():
                self.streams[event.stream_id].reset = event.error_code
            case ngh2.StreamClosed():
                seen = self.streams.setdefault(event.stream_id, Seen(event.stream_id))
                seen.closed = True
                seen.over.set()
            case ngh2.GoAwayReceived():
                self.goaways.append(event)
            case ngh2.PingAcknowledged():
                self.pongs += 1
            case _:
                pass

    def _ended(self, seen: Seen) -> None:
        seen.ended = True
        if self.role is Role.CLIENT:
            seen.over.set()
        self.on_end(self, seen)

    # --- for tests -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Writes all that is queued."""
        while self.transport is not None:
            try:
                data = self.h2.data_to_send()
            except ngh2.NGH2Error:
                return
            if not data:
                return
            self.transport.write(data)

    def acknowledge(self, seen: Seen, size: int) -> None:
        """Gives back `size` bytes of the windows, with `auto_ack` off."""
        self.h2.acknowledge_received_data(size, seen.id)
        self.flush()

    def raw(self, data: bytes) -> None:
        """Writes bytes that the library knows nothing of."""
        self.transport.write(data)

    def reset(self, stream: int, code: int = 8) -> None:
        """RST_STREAM."""
        self.h2.reset_stream(stream, code)
        self.flush()

    def kinds(self, kind: int) -> list[Frame]:
        """The frames received of one kind."""
        return [seen for seen in self.frames if seen.kind == kind]

    def abort(self) -> None:
        """Ends the connection with a TCP reset where there is TCP."""
        self.transport.abort()
