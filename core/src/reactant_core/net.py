"""Addresses and listening sockets, the same for gRPC and HTTP."""

from __future__ import annotations

import os
import socket
from typing import Any, final

_TCP_LISTEN = "0A"


@final
class BindError(OSError):
    """A server could not listen; the text names host:port and the cause."""


def format_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def listening_socket(host: str, port: int, *, backlog: int = 512) -> socket.socket:
    """A non-blocking TCP socket listening on `host`:`port` (0: a free one).

    SO_REUSEPORT stays off: a second server on a port is an error, never half of the traffic.

    Raises:
        BindError: the name does not resolve, or the address is taken or not ours.
    """
    family, target = _addresses(host, port)[0]
    return _listening(host, port, family, target, backlog)


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    """What `host` resolves to, addresses of families this machine does not speak left out."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise BindError(f"cannot listen on {format_address(host, port)}: {_cause(error)}") from error
    usable: list[tuple[socket.AddressFamily, Any]] = [
        (family, target) for family, _, _, _, target in found if _speaks(family)
    ]
    if not usable:
        raise BindError(f"cannot listen on {format_address(host, port)}: no usable address")
    return usable


def _speaks(family: socket.AddressFamily) -> bool:
    if family == socket.AF_INET:
        return True
    try:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def _listening(host: str, port: int, family: int, target: Any, backlog: int) -> socket.socket:
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise BindError(f"cannot listen on {format_address(host, port)}: {_cause(error)}") from error
    try:
        if family == socket.AF_INET6:
            # "::" alone takes IPv4 as well, as gRPC does.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if target[0] == "::" else 1)
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(target)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise BindError(f"cannot listen on {format_address(host, port)}: {_cause(error)}") from error
    return sock


def check_free(host: str, port: int) -> None:
    """Makes sure that every address `host` stands for can be bound at `port`.

    Raises:
        BindError: the first that cannot; names host:port and the cause.
    """
    for family, target in _addresses(host, port):
        _listening(host, port, family, target, backlog=1).close()


def bind_failure(host: str, port: int, reported: BaseException) -> BindError:
    """The error for a library's failed bind, with the cause the library may have swallowed.

    Tries the address once more itself to learn it; falls back on what was `reported`.
    """
    try:
        listening_socket(host, port).close()
    except BindError as error:
        return error
    return BindError(f"cannot listen on {format_address(host, port)}: {reported}")


def unacknowledged_bytes(port: int) -> int | None:
    """Bytes in the send queues of this host's connections on local TCP `port`; None off Linux.

    Counts what the peers' kernels have not yet acknowledged, so 0 means that all of it has arrived.
    """
    total: int | None = None
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        total = total or 0
        for line in lines:
            # sl local rem st tx:rx …, see proc_pid_net(5) of Linux; addresses and queues are hexadecimal.
            _, local, _, state, queues, *_ = line.split(maxsplit=5)
            if state != _TCP_LISTEN and int(local.rpartition(":")[2], 16) == port:
                total += int(queues.partition(":")[0], 16)
    return total


def _cause(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
