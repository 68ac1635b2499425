"""Finds out before anything starts whether the node's ports can be had."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Sequence

from reactant_core.net import BindError, check_free, listening_socket
from reactant_supervisor.listeners import Listener

BACKLOG = 4096
"""Connections that wait in the kernel while a gateway is started anew; Linux allows no more by default."""


def port_faults(listeners: Iterable[Listener]) -> list[str]:
    """A sentence for each listener that cannot be bound now, naming its port and what to do."""
    return [fault for listener in listeners if (fault := _fault(listener)) is not None]


def open_sockets(listeners: Iterable[Listener]) -> list[socket.socket]:
    """Listening sockets, to be handed down; they outlive the process they are handed to.

    Raises:
        BindError: one was taken since it was looked at.
    """
    opened: list[socket.socket] = []
    try:
        for listener in listeners:
            opened.append(listening_socket(listener.host, listener.port, backlog=BACKLOG))
    except BindError:
        close_sockets(opened)
        raise
    return opened


def close_sockets(sockets: Sequence[socket.socket]) -> None:
    """Closes ours; a process that inherited them listens on."""
    for sock in sockets:
        sock.close()


def _fault(listener: Listener) -> str | None:
    try:
        check_free(listener.host, listener.port)
    except BindError as error:
        return f"{listener.purpose}: {error}{_advice(error, listener)}"
    return None


def _advice(error: BindError, listener: Listener) -> str:
    match getattr(error.__cause__, "errno", None):
        case errno.EADDRINUSE:
            return (
                f"; stop what uses it (`ss -ltnp 'sport = :{listener.port}'` shows it) "
                f"or set {listener.setting} to another port"
            )
        case errno.EACCES:
            return f"; set {listener.setting} to a port from 1024 up"
        case _:
            return ""
