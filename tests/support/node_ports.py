"""Ports for the many listeners of a node, which it gives up and takes again while a test runs."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10000


def free_range(count: int, host: str = "127.0.0.1") -> int:
    """The first of `count` ports of `host` in a row that nothing listens on.

    Below the range from which the kernel takes ports for outgoing connections: there one of those could have
    the port of a process that is just being started again, or even connect to itself.
    """
    highest = int(_EPHEMERAL.read_text(encoding="ascii").split()[0]) if _EPHEMERAL.exists() else 32768
    highest = highest if highest > 2 * _LOWEST else 65536
    while True:
        first = random.randrange(_LOWEST, highest - count)
        if all(_free(host, first + n) for n in range(count)):
            return first


def _free(host: str, port: int) -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False
