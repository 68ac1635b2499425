"""A gRPC server on one of two transports that behave the same."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Literal, final

import grpc.aio

from reactant_core.net import bind_failure, format_address
from reactant_core.rpc.native import create_native_server, unavailable_because
from reactant_core.rpc.options import DEFAULT_MESSAGE_BYTES, server_options
from reactant_core.rpc.tls import ServerTls, server_credentials

Transport = Literal["auto", "native", "grpcio"]


@final
class RpcServer:
    """A server with its transport chosen; made by `create_server`.

    Attributes:
        server: what generated `add_*_to_server` functions take.
        transport: `native` or `grpcio`.
        reason: why that one, for the log.
    """

    __slots__ = ("_tls", "reason", "server", "transport")

    def __init__(
        self, server: grpc.aio.Server, *, transport: str, reason: str, tls: ServerTls | None
    ) -> None:
        self.server = server
        self.transport = transport
        self.reason = reason
        self._tls = tls

    def bind(self, host: str, port: int) -> int:
        """Opens the port and returns it (a free one for 0). Calls are answered after `start`.

        Raises:
            BindError: taken, not resolvable, or not ours; names host:port.
            OSError: a TLS file cannot be read.
        """
        address = format_address(host, port)
        try:
            if self._tls is None:
                return self.server.add_insecure_port(address)
            return self.server.add_secure_port(address, server_credentials(self._tls))
        except RuntimeError as error:
            raise bind_failure(host, port, error) from error

    async def start(self) -> None:
        """Begins to answer."""
        await self.server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Refuses new calls with UNAVAILABLE, lets running ones finish within the grace, cancels the rest."""
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
        server = grpc.aio.server(thread_pool, interceptors=tuple(interceptors), options=options)
        reason = "asked for" if transport == "grpcio" else f"native is not possible: {against}"
        return RpcServer(server, transport="grpcio", reason=reason, tls=tls)
    native = create_native_server(interceptors=interceptors, thread_pool=thread_pool, options=options)
    reason = "asked for" if transport == "native" else "no TLS and pygrpc_native is installed"
    return RpcServer(native, transport="native", reason=reason, tls=None)
