"""The gateway's listening sockets: its own, or handed down by the process that started it."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from reactant_core.config.gateway import HOLD_FD_VARIABLE, LISTEN_FDS_VARIABLE
from reactant_core.net import format_address, listening_socket

_RESERVED_DESCRIPTORS: Final = 256
BACKLOG: Final = 4096
"""Connections the kernel keeps for us while we are busy or restarting."""


@final
@dataclass(frozen=True, slots=True)
class Listening:
    """Sockets that listen already.

    Attributes:
        grpc: of gRPC.
        http: of HTTP.
        shared: whoever handed them down listens on: what we do not accept waits for the next gateway.
    """

    grpc: socket.socket
    http: socket.socket
    shared: bool = False


def listen(host: str, port: int, http_port: int, environ: Mapping[str, str]) -> Listening:
    """The sockets handed down in `REACTANT_GATEWAY_LISTEN_FDS` (`grpc=7,http=8`), else new ones.

    Raises:
        BindError: an address is taken or not ours.
        ValueError: the variable names no usable sockets.
    """
    handed = environ.get(LISTEN_FDS_VARIABLE, "")
    if not handed:
        grpc = listening_socket(host, port, backlog=BACKLOG)
        try:
            return Listening(grpc, listening_socket(host, http_port, backlog=BACKLOG))
        except OSError:
            grpc.close()
            raise
    found = dict(part.split("=", 1) for part in handed.split(",") if "=" in part)
    try:
        return Listening(_adopt(found["grpc"]), _adopt(found["http"]), shared=True)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{LISTEN_FDS_VARIABLE}={handed}: accepted is grpc=<fd>,http=<fd> of listening sockets ({error})"
        ) from error


def most_connections() -> int:
    """How many client connections leave descriptors for workers, scrapes and log files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft - _RESERVED_DESCRIPTORS, soft // 2)


def hold_fd(environ: Mapping[str, str]) -> int | None:
    """The pipe through which a gateway is asked to stay when it has drained; None where there is none.

    Raises:
        ValueError: the variable is no file descriptor.
    """
    value = environ.get(HOLD_FD_VARIABLE, "")
    if not value:
        return None
    try:
        os.fstat(int(value))
    except (ValueError, OSError) as error:
        raise ValueError(f"{HOLD_FD_VARIABLE}={value}: accepted is an open file descriptor") from error
    os.set_inheritable(int(value), False)
    os.set_blocking(int(value), False)
    return int(value)


def asked_to_stay(hold: int) -> bool:
    """Whether there is a byte in the pipe: stay until end of file, workers still have to end behind us."""
    try:
        return bool(os.read(hold, 1))
    except BlockingIOError:
        return False


def address_of(sock: socket.socket) -> str:
    """`host:port` that `sock` listens on."""
    host, port, *_ = sock.getsockname()
    return format_address(host, port)


def _adopt(text: str) -> socket.socket:
    sock = socket.socket(fileno=int(text))
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock
