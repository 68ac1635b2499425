"""A gRPC server on one of two transports that behave the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal, Protocol, cast, final
from urllib.parse import quote

import grpc
import grpc.aio

from reactant_core.net import bind_failure, check_free, format_address
from reactant_core.rpc.direct import Taker
from reactant_core.rpc.native import NativeBackend, unavailable_because
from reactant_core.rpc.options import DEFAULT_MESSAGE_BYTES, Options, server_options
from reactant_core.rpc.tls import ServerTls, server_credentials
from reactant_core.unix_socket import SOCKET_MODE, claim, unix_bind_failure

Transport = Literal["auto", "native", "grpcio"]


class _Backend(Protocol):
    name: str
    died: asyncio.Future[str]

    @property
    def server(self) -> grpc.aio.Server: ...
    def bind(self, address: str) -> int:
        """Raises RuntimeError when the address cannot be bound."""
        ...

    def bind_unix(self, path: Path) -> None:
        """Raises RuntimeError when the path cannot be bound."""
        ...

    def offer(self, method: str, taker: Taker) -> None:
        """See `RpcServer.offer`."""
        ...

    async def start(self) -> None: ...
    async def stop(self, grace_seconds: float) -> None: ...


@final
class RpcServer:
    """A server with its transport chosen; made by `create_server`.

    Attributes:
        reason: why this transport, for the log.
    """

    def __init__(self, backend: _Backend, *, reason: str) -> None:
        self._backend = backend
        self._registrar = _Registrar(backend.server)
        self._sockets: dict[Path, tuple[int, int]] = {}
        self.reason = reason

    @property
    def transport(self) -> str:
        """`native` or `grpcio`."""
        return self._backend.name

    @property
    def server(self) -> grpc.aio.Server:
        """What generated `add_*_to_server` functions take; good for nothing else."""
        return cast("grpc.aio.Server", self._registrar)

    @property
    def services(self) -> tuple[str, ...]:
        """Full names of the services added so far, sorted."""
        return tuple(sorted(self._registrar.services))

    def bind(self, host: str, port: int) -> int:
        """Opens the port and returns it (a free one for 0). Calls are answered after `start`.

        Raises:
            BindError: taken, not resolvable, or not ours; names host:port.
            OSError: a TLS file cannot be read.
        """
        if port:
            # gRPC core is content when one of several addresses of a name is free.
            check_free(host, port)
        try:
            return self._backend.bind(format_address(host, port))
        except RuntimeError as error:
            raise bind_failure(host, port, error) from error

    def bind_unix(self, path: Path) -> None:
        """Opens a Unix socket at `path`, for this user and group, beside the port or alone; no TLS there.

        A socket that nobody listens on any more is replaced. The file goes when the server stops.

        Raises:
            BindError: taken, no place for a socket, or over 107 bytes long; names the path.
        """
        claim(path)
        try:
            self._backend.bind_unix(path)
            path.chmod(SOCKET_MODE)
            self._sockets[path] = _identity(path)
        except (RuntimeError, OSError) as error:
            raise unix_bind_failure(path, error) from error

    def offer(self, method: str, taker: Taker) -> None:
        """Offers the calls of a unary method to `taker` before its servicer, where the transport can.

        `method` is `/service/method`. Interceptors do not see what is taken. Call it before `start`.
        """
        self._backend.offer(method, taker)

    async def start(self) -> None:
        """Begins to answer."""
        await self._backend.start()

    async def wait_died(self) -> str:
        """Returns, with the reason, if the server ends without having been stopped: start another."""
        return await asyncio.shield(self._backend.died)

    async def stop(self, grace_seconds: float) -> None:
        """Refuses new calls with UNAVAILABLE, lets running ones finish within the grace, cancels the rest.

        Returns as soon as nothing runs any more. Open streams count as running: end them first
        (`HealthServicer.shutdown`), or the whole grace is spent on them. Refuse calls in the servicers
        before: on grpcio one that arrives in the very moment of the stop may end as CANCELLED.
        """
        await self._backend.stop(grace_seconds)
        for path, identity in self._sockets.items():
            with contextlib.suppress(OSError):
                if _identity(path) == identity:
                    path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


@final
class _Registrar:
    """Passes handlers on to a server and remembers the names of their services."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server
        self.services: set[str] = set()

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        for handler in generic_rpc_handlers:
            if isinstance(handler, grpc.ServiceRpcHandler):
                self.services.add(handler.service_name())
        self._server.add_generic_rpc_handlers(generic_rpc_handlers)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        self.services.add(service_name)
        self._server.add_registered_method_handlers(service_name, dict(method_handlers))


@final
class _GrpcioBackend:
    name = "grpcio"

    def __init__(
        self,
        *,
        interceptors: Sequence[grpc.aio.ServerInterceptor],
        thread_pool: Executor | None,
        options: Options,
        tls: ServerTls | None,
    ) -> None:
        self.server = grpc.aio.server(thread_pool, interceptors=tuple(interceptors), options=options)
        self.died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tls = tls

    def bind(self, address: str) -> int:
        if self._tls is None:
            return self.server.add_insecure_port(address)
        return self.server.add_secure_port(address, server_credentials(self._tls))

    def bind_unix(self, path: Path) -> None:
        # gRPC core reads the address as a URI.
        self.server.add_insecure_port(f"unix:{quote(os.fspath(path))}")

    def offer(self, method: str, taker: Taker) -> None:
        """Not here: the servicer gets every call."""

    async def start(self) -> None:
        before = asyncio.all_tasks()
        await self.server.start()
        for task in asyncio.all_tasks() - before:
            # grpcio 1.85 ends its loop, and with it the server, on a `:path` that is not UTF-8.
            if "_server_main_loop" in repr(task):
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.died.done():
            self.died.set_result(f"grpcio's server ended by itself: {error!r}")

    async def stop(self, grace_seconds: float) -> None:
        await self.server.stop(grace_seconds)


def create_server(
    *,
    transport: Transport = "auto",
    max_recv_msg_bytes: int = DEFAULT_MESSAGE_BYTES,
    max_send_msg_bytes: int = DEFAULT_MESSAGE_BYTES,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    thread_pool: Executor | None = None,
    tls: ServerTls | None = None,
) -> RpcServer:
    """A server not yet bound. Call with the event loop running that will serve.

    Args:
        transport: `native` (no TLS), `grpcio`, or `auto`: native where it is possible.
        max_recv_msg_bytes: larger requests are refused with RESOURCE_EXHAUSTED.
        max_send_msg_bytes: larger responses become RESOURCE_EXHAUSTED.
        interceptors: run on every call.
        thread_pool: runs handlers that are not coroutines.
        tls: serve over TLS.

    Raises:
        ValueError: `native` where it is not possible, or a limit outside 1 .. 2**31 - 1 bytes.
    """
    options = server_options(max_recv_msg_bytes=max_recv_msg_bytes, max_send_msg_bytes=max_send_msg_bytes)
    against = "it has no TLS" if tls is not None else unavailable_because()
    if transport == "native" and against is not None:
        raise ValueError(f"transport native is not possible: {against}")
    if transport == "grpcio" or against is not None:
        reason = "asked for" if transport == "grpcio" else f"native is not possible: {against}"
        return RpcServer(
            _GrpcioBackend(interceptors=interceptors, thread_pool=thread_pool, options=options, tls=tls),
            reason=reason,
        )
    reason = "asked for" if transport == "native" else "no TLS, and pygrpc_native is installed"
    return RpcServer(
        NativeBackend(interceptors=interceptors, thread_pool=thread_pool, options=options), reason=reason
    )
