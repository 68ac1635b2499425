"""A TCP hop between client and server that a test can cut, as a dead client's kernel would."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import final

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, no time


@final
class Forwarder:
    """Passes bytes on to `host`:`port` both ways; use as a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server((host, 0))
        self._host = host
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{self._host}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Forwarder:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def cut(self) -> None:
        """Resets every connection and accepts no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                sock.shutdown(socket.SHUT_RD)
            sock.close()

    def _spawn(self, function: object, *arguments: object) -> None:
        assert callable(function)
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += (near, far)
                self._spawn(_pump, near, far)
                self._spawn(_pump, far, near)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
