"""Takes requests off client connections and gives each to what answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, final

from reactant_gateway.forward.exchange import Exchange
from reactant_gateway.forward.forwarder import Forwarder
from reactant_gateway.forward.stream import StreamExchange
from reactant_gateway.forward.tunnel import Tunnel
from reactant_gateway.h2 import grpc
from reactant_gateway.h2.grpc import Headers
from reactant_gateway.h2.server import MAX_HEADER_BYTES, ServerConnection, ServerStream
from reactant_gateway.workers.pool import WorkerLink

_INFER: Final = b"/inference.GRPCInferenceService/ModelInfer"
_STREAM_INFER: Final = b"/inference.GRPCInferenceService/ModelStreamInfer"
_WATCH: Final = b"/grpc.health.v1.Health/Watch"
_INFERENCE: Final = (_INFER, _STREAM_INFER)
# A stream's messages are counted one by one; a watch stays open for as long as its client likes.
_UNCOUNTED: Final = (_STREAM_INFER, _WATCH)
_MOST_WATCHES: Final = 128
_NOT_STARTED: Final = (grpc.UNAVAILABLE, grpc.RESOURCE_EXHAUSTED)


@final
@dataclass(frozen=True, slots=True)
class _Call:
    """What the headers of a request say.

    Attributes:
        source: the headers this was read from.
        path: the method.
        service: the service it is of; empty when the path is none that gRPC knows. grpcio 1.85 ends its
            whole server on a path that is not UTF-8.
        passed_on: for ModelInfer and ModelStreamInfer, what a worker gets, without `grpc-timeout`.
        encoding: of the request's messages.
        timeout: seconds, None without one.
        refusal: status and text when the call cannot be taken.
    """

    source: Headers
    path: bytes
    service: bytes
    passed_on: Headers
    encoding: bytes
    timeout: float | None
    refusal: tuple[int, str] | None


@final
class Listener:
    """The `Acceptor` of every client connection.

    Args:
        forwarder: what exchanges share.
        local: the connection to the server on the private socket.
        services: full names of the services that answer there.
        most: client connections at a time; further ones are closed.
    """

    def __init__(
        self, forwarder: Forwarder, local: WorkerLink, services: Iterable[str], most: int = 1_000_000
    ) -> None:
        self._most = most
        self._fw = forwarder
        self._services = frozenset(service.encode("ascii") for service in services)
        self._local = local
        self._connections: set[ServerConnection] = set()
        self._left: Callable[[], None] | None = None
        # Clients send the same headers again and again.
        self._last: _Call | None = None

    @property
    def connections(self) -> int:
        """Client connections open."""
        return len(self._connections)

    def new_connection(self) -> ServerConnection:
        """The protocol of one accepted connection."""
        return ServerConnection(self)

    def drain(self) -> None:
        """Refuses what is new, ends streams after what they have begun, sends the clients away."""
        self._fw.draining = True
        for stream in list(self._fw.streams):
            stream.drain()
        for connection in list(self._connections):
            connection.drain()

    def when_left(self, callback: Callable[[], None]) -> None:
        """Calls back each time the last client is gone, and now if none is there."""
        self._left = callback
        if not self._connections:
            callback()

    def close(self) -> None:
        """Closes every connection."""
        for connection in list(self._connections):
            connection.close()

    # --- Acceptor --------------------------------------------------------------------------------------

    def connected(self, connection: ServerConnection) -> None:
        """A client has connected."""
        if len(self._connections) >= self._most:
            # Descriptors are left for workers, for health and for those that are here.
            connection.abort()
            return
        self._connections.add(connection)
        if self._fw.draining:
            connection.open = False
            connection.drain()

    def disconnected(self, connection: ServerConnection) -> None:
        """Its connection is gone."""
        self._connections.discard(connection)
        if not self._connections and self._left is not None:
            self._left()

    def request(
        self, connection: ServerConnection, stream: int, headers: Headers, ended: bool
    ) -> ServerStream | None:
        """The head of a request."""
        call = self._last
        if call is None or call.source != headers:
            call = self._last = _read(headers)
        refusal = call.refusal or self._closed_to(connection, call)
        if refusal is not None:
            code, why = refusal
            extra = (grpc.NOT_STARTED,) if code in _NOT_STARTED else ()
            status = grpc.status_headers(code, why, extra)
            connection.send_response(stream, grpc.RESPONSE_HEADERS + status, True)
            connection.finish(stream, ended)
            return None
        answering = self._answering(connection, stream, call, ended)
        if ended and call.path in _INFERENCE:
            answering.request_data(b"", True)
        return answering

    def _closed_to(self, connection: ServerConnection, call: _Call) -> tuple[int, str] | None:
        """Why the call is not taken now; one that is taken has been admitted."""
        fw = self._fw
        if call.path in _INFERENCE:
            # A client that has not yet read the first GOAWAY has done nothing wrong: it is served.
            if not connection.open or (fw.draining and call.path == _STREAM_INFER):
                return grpc.UNAVAILABLE, "the server is shutting down"
        elif call.service not in self._services:
            return grpc.UNIMPLEMENTED, f"no such method: {call.path.decode('ascii', 'replace')}"
        elif self._local.acquire() is None:
            return grpc.UNAVAILABLE, "the gateway's own server is not there yet"
        if call.path == _WATCH and connection.watches >= _MOST_WATCHES:
            return grpc.RESOURCE_EXHAUSTED, f"{_MOST_WATCHES} health watches are open on this connection"
        if call.path not in _UNCOUNTED and not fw.admit(connection):
            return grpc.RESOURCE_EXHAUSTED, f"the gateway has its {fw.cap} requests in flight"
        return None

    def _answering(self, connection: ServerConnection, stream: int, call: _Call, ended: bool) -> ServerStream:
        fw = self._fw
        if call.path == _INFER:
            return Exchange(
                fw,
                connection,
                stream,
                call.passed_on,
                encoding=call.encoding,
                timeout=call.timeout,
                counted=connection,
            )
        if call.path == _STREAM_INFER:
            return StreamExchange(
                fw, connection, stream, call.passed_on, encoding=call.encoding, timeout=call.timeout
            )
        watch = call.path == _WATCH
        connection.watches += watch

        def over() -> None:
            if watch:
                connection.watches -= 1
            else:
                fw.release(connection)

        return Tunnel(connection, stream, self._local, call.source, ended=ended, on_end=over)


def _read(headers: Headers) -> _Call:
    path = content_type = method = b""
    encoding, timeout = b"identity", None
    refusal: tuple[int, str] | None = None
    kept: list[tuple[bytes, bytes]] = []
    size = 0
    for name, value in headers:
        size += len(name) + len(value) + 32
        if name == b":path":
            path = value
            kept.append((name, _INFER if value == _STREAM_INFER else value))
            continue
        if name == b":method":
            method = value
        elif name == b"content-type":
            content_type = value
        elif name == b"grpc-encoding":
            encoding = value
        elif name == b"grpc-timeout":
            try:
                timeout = grpc.parse_timeout(value)
            except ValueError as error:
                refusal = (grpc.INVALID_ARGUMENT, str(error))
            continue
        elif name == grpc.HOP[0]:
            refusal = (
                grpc.FAILED_PRECONDITION,
                "the request came through another gateway; the endpoints of a gateway are workers",
            )
        kept.append((name, value))
    if method != b"POST" or not content_type.startswith(b"application/grpc"):
        refusal = (grpc.INVALID_ARGUMENT, "gRPC calls are POST requests with content-type application/grpc")
    if size > MAX_HEADER_BYTES:
        refusal = (grpc.RESOURCE_EXHAUSTED, f"the headers are larger than {MAX_HEADER_BYTES} bytes")
    kept.append(grpc.HOP)
    service = path.split(b"/")[1] if path.count(b"/") == 2 and path.isascii() else b""
    return _Call(headers, path, service, tuple(kept), encoding, timeout, refusal)
