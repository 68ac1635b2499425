"""A connection that writes what it is told and reads frames."""

from __future__ import annotations

import socket
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import final

import ngh2
from tests.fuzz import frames as f
from tests.fuzz.corpus import PREAMBLE
from tests.support.process import HOST

PATIENCE_SECONDS = 5.0
_WINDOW = 1 << 30


@final
@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it came."""

    kind: int
    flags: int
    stream: int
    payload: bytes


@final
class RawConnection:
    """Blocking; use as a context manager. Keeps account of what stream 1 may send.

    Args:
        port: of the listener, on this machine.
        preamble: begin as a sound client does.
    """

    def __init__(self, port: int, *, preamble: bool = True) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._frames: deque[Frame] = deque()
        self._window = 0
        if preamble:
            self.send(*PREAMBLE)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, *frames: bytes) -> None:
        """Writes; OSError when the other side has closed."""
        self._socket.sendall(b"".join(frames))

    def upload(self, body: bytes, size: int, *, seconds: float = 30.0) -> None:
        """Sends `body` on stream 1 in DATA frames of `size` bytes, as fast as the window allows."""
        end = time.monotonic() + seconds
        at = 0
        while at < len(body):
            assert time.monotonic() < end, f"{at} of {len(body)} bytes sent in {seconds} s"
            room = min(self._window // size, 8192)
            if not room:
                self._take()
                continue
            pieces = [
                body[start : start + size] for start in range(at, min(len(body), at + room * size), size)
            ]
            self.send(*(f.data(1, piece) for piece in pieces))
            at += sum(map(len, pieces))
            self._window -= sum(map(len, pieces))

    def frame(self) -> Frame | None:
        """The next frame, WINDOW_UPDATE excepted; None when the other side has closed."""
        while not self._frames:
            if not self._take():
                return None
        return self._frames.popleft()

    def until(self, kind: int, *, flags: int = 0) -> Frame:
        """The next frame of this kind that has these flags; those before it are passed over."""
        while (found := self.frame()) is not None:
            if found.kind == kind and found.flags & flags == flags:
                return found
        raise AssertionError("closed before it came")

    def wait_closed(self) -> None:
        """Fails when the other side does not close."""
        while self.frame() is not None:
            pass

    def _take(self) -> bool:
        try:
            received = self._socket.recv(1 << 18)
        except TimeoutError:
            raise AssertionError(f"nothing for {PATIENCE_SECONDS} s") from None
        except ConnectionError:
            return False
        self._buffer += received
        at = 0
        while len(self._buffer) - at >= f.HEADER_BYTES:
            start = at + f.HEADER_BYTES
            end = start + int.from_bytes(self._buffer[at : at + 3], "big")
            if len(self._buffer) < end:
                break
            stream = int.from_bytes(self._buffer[at + 5 : start], "big")
            self._read(Frame(self._buffer[at + 3], self._buffer[at + 4], stream, self._buffer[start:end]))
            at = end
        self._buffer = self._buffer[at:]
        return bool(received)

    def _read(self, frame: Frame) -> None:
        if frame.kind == f.WINDOW_UPDATE:
            self._window += int.from_bytes(frame.payload, "big") if frame.stream == 1 else 0
            return
        if frame.kind == f.SETTINGS and not frame.flags & f.ACK:
            for at in range(0, len(frame.payload), 6):
                if frame.payload[at : at + 2] == b"\0\4":
                    self._window += int.from_bytes(frame.payload[at + 2 : at + 6], "big")
        self._frames.append(frame)


def answer(port: int, sent: tuple[bytes, ...]) -> tuple[int, bytes]:
    """`grpc-status` and body of the answer on stream 1 to these frames."""
    client = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
    client.initiate_connection({int(ngh2.Setting.INITIAL_WINDOW_SIZE): _WINDOW})
    client.set_local_window_size(_WINDOW)
    # A stream 1 for the library to know of; what it writes itself is thrown away.
    client.send_request(
        ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"x"))
    )
    client.data_to_send(1 << 20)
    begin = (f.PREFACE, f.settings((4, _WINDOW)), f.frame(f.SETTINGS, f.ACK, 0), f.window_update(0, _WINDOW))
    with socket.create_connection((HOST, port), PATIENCE_SECONDS) as sock:
        sock.sendall(b"".join((*begin, *sent)))
        body = b""
        while received := sock.recv(1 << 16):
            client.receive_data(received)
            for event in client.events():
                match event:
                    case ngh2.DataReceived():
                        body += event.data
                    case ngh2.TrailersReceived() | ngh2.ResponseReceived():
                        status = dict(event.headers).get(b"grpc-status")
                        if status is not None:
                            return int(status), body
                    case ngh2.StreamReset():
                        raise AssertionError(f"reset with {event.error_code}")
    raise AssertionError("closed without an answer")
