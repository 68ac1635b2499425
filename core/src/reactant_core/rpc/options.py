"""Channel arguments of gRPC core that every server or channel of ours gets."""

from __future__ import annotations

from typing import Any

Options = list[tuple[str, Any]]

DEFAULT_MESSAGE_BYTES = 512 * 1024 * 1024
"""Largest message either way, bytes."""

LONGEST_MESSAGE_BYTES = 2**31 - 1
"""gRPC core keeps the limit in a signed 32-bit integer."""

_SERVER_PING_MS = 60_000
_CHANNEL_PING_MS = 30_000
_PING_TIMEOUT_MS = 20_000


def _limits(max_recv_msg_bytes: int, max_send_msg_bytes: int) -> Options:
    for name, value in (
        ("max_recv_msg_bytes", max_recv_msg_bytes),
        ("max_send_msg_bytes", max_send_msg_bytes),
    ):
        if not 0 < value <= LONGEST_MESSAGE_BYTES:
            raise ValueError(f"{name} = {value}: accepted is 1 to {LONGEST_MESSAGE_BYTES}")
    return [
        ("grpc.max_receive_message_length", max_recv_msg_bytes),
        ("grpc.max_send_message_length", max_send_msg_bytes),
    ]


def server_options(*, max_recv_msg_bytes: int, max_send_msg_bytes: int) -> Options:
    """For a server: message limits in bytes, exclusive ports, no GOAWAY for a client's keepalive pings."""
    return [
        *_limits(max_recv_msg_bytes, max_send_msg_bytes),
        ("grpc.so_reuseport", 0),
        # Pings of a client without calls are welcome, and none of them is ever a strike.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
        # Our own pings find clients that vanished without closing.
        ("grpc.keepalive_time_ms", _SERVER_PING_MS),
        ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
    ]


def channel_options(*, max_recv_msg_bytes: int, max_send_msg_bytes: int) -> Options:
    """For a channel: message limits in bytes, keepalive without calls, quick reconnects, no retries."""
    return [
        *_limits(max_recv_msg_bytes, max_send_msg_bytes),
        ("grpc.keepalive_time_ms", _CHANNEL_PING_MS),
        ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        # Calls to a named server go there, whatever http_proxy says.
        ("grpc.enable_http_proxy", 0),
    ]
