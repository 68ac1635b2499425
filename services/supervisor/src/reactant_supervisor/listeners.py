"""The ports of a node. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from reactant_core.config import Fault


@final
@dataclass(frozen=True, slots=True)
class Listener:
    """A port that something of this node listens on.

    Attributes:
        purpose: what for, such as `gRPC` or `worker1 HTTP`.
        host: address or name to bind.
        port: its number.
        setting: what a user changes to move it.
    """

    purpose: str
    host: str
    port: int
    setting: str


def repeated_ports(listeners: Iterable[Listener]) -> list[Fault]:
    """A fault for each listener whose port another one before it has, on whatever address."""
    seen: dict[int, Listener] = {}
    faults = []
    for listener in listeners:
        first = seen.setdefault(listener.port, listener)
        if first is not listener:
            problem = (
                f"{listener.port} ({listener.purpose}) is also the port for {first.purpose} "
                f"({first.setting}); each needs one of its own"
            )
            faults.append(Fault(listener.setting, problem, listener.setting))
    return faults
