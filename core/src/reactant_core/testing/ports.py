"""Ports for servers under test."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10000


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of `host` that nothing listens on now; see `free_range`."""
    return free_range(1, host)


def free_range(count: int, host: str = "127.0.0.1") -> int:
    """The first of `count` TCP ports of `host` in a row that nothing listens on now.

    Below the range from which the kernel takes ports for outgoing connections: there one of those could have
    the port of a server that is just starting, or even connect to itself. Another process may still take a
    port before the caller does; binding port 0 is better where the server can say which port it got.
    """
    highest = int(_EPHEMERAL.read_text(encoding="ascii").split()[0]) if _EPHEMERAL.exists() else 32768
    highest = highest if highest > 2 * _LOWEST else 65536
    while True:
        first = random.randrange(_LOWEST, highest - count)  # noqa: S311 (nothing secret about a port)
        if all(_free(host, first + n) for n in range(count)):
            return first


def _free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return True
    except OSError:
        return False
