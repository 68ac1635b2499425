"""What a service manager hears from a service of `Type=notify`."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from reactant_core.testing import eventually_sync

_CREDENTIALS = struct.Struct("iII")


@final
@dataclass(frozen=True, slots=True)
class Told:
    """One datagram.

    Attributes:
        text: what it says, such as `READY=1`.
        pid: who sent it, by the kernel's word.
    """

    text: str
    pid: int


@final
class Manager:
    """The manager's end of the socket; use as a context manager.

    Args:
        address: a path, or `@` and an abstract name, as in `NOTIFY_SOCKET`.
        at_ready: called in the thread that reads when READY=1 has come, before anything else is read.
    """

    def __init__(self, address: str, at_ready: Callable[[], object] = lambda: None) -> None:
        self.address = address
        self.told: list[Told] = []
        self.at_ready: list[object] = []
        self._at_ready = at_ready
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._listen, name="manager")

    def __enter__(self) -> Manager:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + self.address[1:] if self.address.startswith("@") else self.address)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._socket.close()

    @property
    def texts(self) -> list[str]:
        """What has been said, in order."""
        return [told.text for told in self.told]

    def wait_told(self, text: str, seconds: float, *, times: int = 1) -> None:
        """Until it has been said so often."""
        eventually_sync(lambda: self.texts.count(text) >= times, seconds, what=f"{text} is told")

    def _listen(self) -> None:
        while True:
            data, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
            if not data:
                return
            pid, _, _ = _CREDENTIALS.unpack(ancillary[0][2])
            self.told.append(Told(data.decode(), pid))
            if data == b"READY=1":
                self.at_ready.append(self._at_ready())
