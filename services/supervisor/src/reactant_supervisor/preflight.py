"""Finds out before anything starts whether the public ports can be had."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from reactant_core.net import BindError, listening_socket


@final
@dataclass(frozen=True, slots=True)
class Listener:
    """A port that a child will listen on; `setting` is what a user changes to move it."""

    purpose: str
    host: str
    port: int
    setting: str


def port_faults(listeners: Iterable[Listener]) -> list[str]:
    """A sentence for each listener that cannot be bound now, naming its port and what to do."""
    return [fault for listener in listeners if (fault := _fault(listener)) is not None]


def _fault(listener: Listener) -> str | None:
    try:
        listening_socket(listener.host, listener.port).close()
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
