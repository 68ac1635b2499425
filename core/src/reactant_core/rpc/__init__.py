"""gRPC servers and channels: one place chooses the transport, the limits and the keepalive rules."""

from __future__ import annotations

from reactant_core.rpc.channel import create_channel, create_sync_channel
from reactant_core.rpc.health import HealthServicer, add_health
from reactant_core.rpc.options import DEFAULT_MESSAGE_BYTES
from reactant_core.rpc.reflection import add_reflection
from reactant_core.rpc.server import RpcServer, Transport, create_server
from reactant_core.rpc.tls import ClientTls, ServerTls

__all__ = [
    "DEFAULT_MESSAGE_BYTES",
    "ClientTls",
    "HealthServicer",
    "RpcServer",
    "ServerTls",
    "Transport",
    "add_health",
    "add_reflection",
    "create_channel",
    "create_server",
    "create_sync_channel",
]
