"""What systemd is told of a service's state: the datagrams of sd_notify(3)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final, final

from reactant_core.logs import get_logger

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""For the process that systemd started alone: a child that inherits them would speak for it."""

_log = get_logger(__name__)


@final
class Notifier:
    """Sends states to the socket that `NOTIFY_SOCKET` names: a path, or `@` and an abstract name.

    Does nothing without one. A socket that cannot be reached is logged once and never an error.

    Attributes:
        watchdog_seconds: how often systemd expects `watchdog`, None when it does not.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        name = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._failed = False
        self.watchdog_seconds = _watchdog_seconds(environ) if name else None

    def ready(self) -> None:
        """The service serves; what a `Type=notify` unit waits for."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """A line for people, shown by `systemctl status`."""
        self._send("STATUS=" + " ".join(text.split()))

    def watchdog(self) -> None:
        """The service is alive."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The stop has begun."""
        self._send("STOPPING=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                # A manager that does not read must not hold up the event loop.
                sock.setblocking(False)
                sock.sendto(state.encode(), self._address)
        except (OSError, ValueError) as error:
            if not self._failed:
                _log.warning(f"NOTIFY_SOCKET cannot be told {state.partition('=')[0]}: {error}")
            self._failed = True


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", "") not in ("", str(os.getpid())):
        return None
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isdecimal() and int(text) else None
