"""A client that sends many requests in one write, so that a server finds them all at once.

A gRPC client in Python takes about as long to send a request as a small model takes to run one, and much
longer on a machine that does other things beside: what is sent as a burst arrives as a trickle.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import final

import grpc
import ngh2
from ngh2 import Setting

_METHOD = b"/inference.GRPCInferenceService/ModelInfer"
_WINDOW_BYTES = 1 << 30
_CODES = {code.value[0]: code for code in grpc.StatusCode}

Outcome = Callable[[grpc.StatusCode, str, bytes], None]
"""Is told the status of a call, its text and the response message, which is empty unless OK."""


@final
class Volley:
    """One HTTP/2 connection; use as a context manager. Leaving it ends what is outstanding as UNAVAILABLE.

    Args:
        address: of the server, as host:port.
        timeout_seconds: sent with every request.
    """

    def __init__(self, address: str, timeout_seconds: float) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_seconds)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", _METHOD),
            (b":authority", address.encode()),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"grpc-timeout", b"%dm" % round(timeout_seconds * 1000)),
        )
        self._lock = threading.Lock()
        self._bodies: dict[int, bytearray] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._h2 = ngh2.Connection(ngh2.Role.CLIENT)
        self._h2.initiate_connection({Setting.INITIAL_WINDOW_SIZE: _WINDOW_BYTES, Setting.ENABLE_PUSH: 0})
        self._h2.set_local_window_size(_WINDOW_BYTES)
        self._reader = threading.Thread(target=self._read, name="volley")

    def __enter__(self) -> Volley:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()

    def send(self, requests: Sequence[tuple[bytes, Outcome]]) -> None:
        """Sends each message, all in one write; outcomes are told on another thread."""
        with self._lock:
            for message, outcome in requests:
                stream = self._h2.send_request(self._head)
                self._h2.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message, end_stream=True)
                self._bodies[stream], self._outcomes[stream] = bytearray(), outcome
            self._flush()

    def _flush(self) -> None:
        parts = []
        while data := self._h2.data_to_send():
            parts.append(bytes(data))
        # The reader finds out that a connection has ended.
        with suppress(ConnectionError):
            self._socket.sendall(b"".join(parts))

    def _read(self) -> None:
        while data := self._receive():
            with self._lock:
                self._h2.receive_data(data)
                events = list(self._h2.events())
                self._flush()
            for event in events:
                self._event(event)
        with self._lock:
            left = [self._outcomes.pop(stream) for stream in sorted(self._outcomes)]
        for outcome in left:
            outcome(grpc.StatusCode.UNAVAILABLE, "the connection has ended", b"")

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 18)
        except ConnectionError:
            return b""

    def _event(self, event: ngh2.Event) -> None:
        match event:
            case ngh2.DataReceived():
                self._bodies[event.stream_id] += event.data
            case ngh2.ResponseReceived(end_stream=True) | ngh2.TrailersReceived():
                headers = dict(event.headers)
                code = _CODES[int(headers.get(b"grpc-status", b"2"))]
                self._end(event.stream_id, code, headers.get(b"grpc-message", b"").decode())
            case ngh2.StreamReset():
                self._end(event.stream_id, grpc.StatusCode.UNAVAILABLE, f"reset with {event.error_code}")
            case _:
                pass

    def _end(self, stream: int, code: grpc.StatusCode, details: str) -> None:
        with self._lock:
            outcome, body = self._outcomes.pop(stream, None), self._bodies.pop(stream, bytearray())
        if outcome is not None:
            outcome(code, details, bytes(body[5:]) if code is grpc.StatusCode.OK else b"")
