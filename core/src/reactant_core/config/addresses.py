"""Where a worker is reached: `host:port`, or `unix:/path` on this machine."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

UNIX_PREFIX = "unix:"
_SOCKET_PATH_BYTES = 107
"""`sockaddr_un.sun_path` on Linux holds 108 bytes with the closing zero."""

_HOST_PORT = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})"
)
_HOST_PORTS = "host:port or [IPv6 address]:port"
_ADDRESSES = "host:port, [IPv6 address]:port or unix:/path"


def split_host_port(address: str) -> tuple[str, int]:
    """Host, an IPv6 one without its brackets, and port of `host:port`.

    Raises:
        ValueError: it is no such address.
    """
    found = _HOST_PORT.fullmatch(address)
    if found is None or not 1 <= int(found["port"]) <= 65535:
        raise ValueError(f"accepted is {_HOST_PORTS}")
    if found["v6"] is not None:
        try:
            ipaddress.IPv6Address(found["v6"])
        except ValueError:
            raise ValueError(f"accepted is {_HOST_PORTS}") from None
    return found["v6"] or found["host"], int(found["port"])


def socket_path(address: str) -> Path | None:
    """The path of a `unix:` address, None of any other."""
    return Path(address.removeprefix(UNIX_PREFIX)) if address.startswith(UNIX_PREFIX) else None


def is_same_host(address: str) -> bool:
    """Whether what `address` (a valid one) names runs on this machine, as far as the address shows.

    Unix sockets, `localhost` and loopback addresses do; any other host counts as another machine.
    """
    if address.startswith(UNIX_PREFIX):
        return True
    host, _ = split_host_port(address)
    if host.lower() == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def _host_port(address: str) -> str:
    split_host_port(address)
    return address


def _address(address: str) -> str:
    path = socket_path(address)
    if path is not None:
        if "," in address:
            raise ValueError("the path of a socket has no commas, which separate addresses")
        checked_socket_path(path)
        return address
    try:
        return _host_port(address)
    except ValueError:
        raise ValueError(f"accepted is {_ADDRESSES}") from None


def checked_socket_path(path: Path) -> Path:
    """`path` when a Unix socket can be there.

    Raises:
        ValueError: it is not absolute, or longer than the system takes.
    """
    if not path.is_absolute() or "\0" in str(path):
        raise ValueError("accepted is an absolute path")
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        raise ValueError(f"accepted is a path of {_SOCKET_PATH_BYTES} bytes at most")
    return path


Address = Annotated[str, AfterValidator(_address), Field(description=_ADDRESSES)]
"""gRPC of a worker."""

HostPort = Annotated[str, AfterValidator(_host_port), Field(description=_HOST_PORTS)]
"""HTTP of a worker."""
