"""Channels to our servers."""

from __future__ import annotations

import grpc
import grpc.aio

from reactant_core.rpc.options import DEFAULT_MESSAGE_BYTES, Options, channel_options
from reactant_core.rpc.tls import ClientTls, channel_credentials


def create_channel(
    address: str,
    *,
    max_recv_msg_bytes: int = DEFAULT_MESSAGE_BYTES,
    max_send_msg_bytes: int = DEFAULT_MESSAGE_BYTES,
    tls: ClientTls | None = None,
) -> grpc.aio.Channel:
    """An asyncio channel to `address` (`host:port` or `unix:/path`); belongs to the running event loop.

    Raises:
        ValueError: a limit outside 1 .. 2**31 - 1 bytes.
        OSError: a TLS file cannot be read.
    """
    options = _options(max_recv_msg_bytes, max_send_msg_bytes, tls)
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, channel_credentials(tls), options=options)


def create_sync_channel(
    address: str,
    *,
    max_recv_msg_bytes: int = DEFAULT_MESSAGE_BYTES,
    max_send_msg_bytes: int = DEFAULT_MESSAGE_BYTES,
    tls: ClientTls | None = None,
) -> grpc.Channel:
    """`create_channel` for code without an event loop, such as a command line."""
    options = _options(max_recv_msg_bytes, max_send_msg_bytes, tls)
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, channel_credentials(tls), options=options)


def _options(max_recv_msg_bytes: int, max_send_msg_bytes: int, tls: ClientTls | None) -> Options:
    options = channel_options(max_recv_msg_bytes=max_recv_msg_bytes, max_send_msg_bytes=max_send_msg_bytes)
    if tls is not None and tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return options
