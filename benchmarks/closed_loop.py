"""`python -m benchmarks.closed_loop PORT METHOD BODY_FILE REQUESTS`: latencies of one call at a time.

Blocking sockets and nothing else that runs, so that what differs between two servers is the servers.
Prints seconds as a JSON list. Every call must end with grpc-status 0.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import final

import ngh2
from ngh2 import Setting

_WINDOW_BYTES = 2**30
_READ_BYTES = 256 * 1024


@final
class Client:
    """One HTTP/2 connection that carries one gRPC call at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._h2 = ngh2.Connection(ngh2.Role.CLIENT)
        self._h2.initiate_connection({Setting.INITIAL_WINDOW_SIZE: _WINDOW_BYTES, Setting.ENABLE_PUSH: 0})
        self._h2.set_local_window_size(_WINDOW_BYTES)
        self._authority = f"127.0.0.1:{port}".encode()

    def call(self, method: str, body: bytes) -> dict[bytes, bytes]:
        """The trailers of a unary call; `body` has its five-byte prefix.

        Raises:
            ConnectionError: the server ended the connection or the stream.
        """
        stream = self._h2.send_request(
            [
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", b"/" + method.encode()),
                (b":authority", self._authority),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
            ]
        )
        self._h2.send_data(stream, body, end_stream=True)
        while True:
            while data := self._h2.data_to_send():
                self._socket.sendall(data)
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._h2.receive_data(data)
            for event in self._h2.events():
                if isinstance(event, ngh2.TrailersReceived) and event.stream_id == stream:
                    return dict(event.headers)
                if isinstance(event, ngh2.StreamReset | ngh2.StreamClosed) and event.stream_id == stream:
                    raise ConnectionError(f"the server ended the stream: {event}")

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


def main(arguments: Sequence[str]) -> int:
    """Command-line entry point."""
    port, method, path, requests = arguments
    body = Path(path).read_bytes()
    client = Client(int(port))
    seconds = []
    for _ in range(int(requests)):
        begin = time.perf_counter()
        trailers = client.call(method, body)
        seconds.append(time.perf_counter() - begin)
        if trailers.get(b"grpc-status") != b"0":
            raise RuntimeError(f"a call ended with {trailers}")
    client.close()
    print(json.dumps(seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
