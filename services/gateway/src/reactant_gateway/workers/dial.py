"""Whether anything listens at an address."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from reactant_core.config.addresses import socket_path, split_host_port


async def dial(address: str) -> None:
    """Connects to `address` (`host:port` or `unix:/path`) and closes the connection again.

    Raises:
        ConnectionError: refused or reset, or there is no such socket.
        OSError: it cannot be reached, or its name does not resolve.
    """
    loop = asyncio.get_running_loop()
    faults: list[OSError] = []
    for family, target in await _targets(address):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setblocking(False)
                await loop.sock_connect(sock, target)
                return
        except FileNotFoundError as error:
            faults.append(ConnectionRefusedError(error.errno, error.strerror))
        except OSError as error:
            # The event loop's text is about its own call.
            faults.append(OSError(error.errno, os.strerror(error.errno or 0)))
    # Of several addresses of one name some may not be for us, such as IPv6 where there is none.
    raise next((fault for fault in faults if isinstance(fault, ConnectionError)), faults[0])


async def _targets(address: str) -> list[tuple[socket.AddressFamily, Any]]:
    path = socket_path(address)
    if path is not None:
        return [(socket.AF_UNIX, str(path))]
    host, port = split_host_port(address)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, target) for family, _, _, _, target in found]
