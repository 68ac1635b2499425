"""File-system events: that something changed, sooner than the next look would find it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from watchfiles import watch

from reactant_core.logs import get_logger

_log = get_logger(__name__)

_GROUP_MS: Final = 500
_STEP_MS: Final = 100
"""How often the thread looks whether there is something, or whether it should end."""


@final
class FileEvents:
    """Calls `on_change` on the event loop when something below one of the folders changed.

    Where the kernel gives no events, as for what another machine does on a network file system, it is not
    called; where it cannot watch so many folders, a warning says so.
    """

    def __init__(self, dirs: Sequence[Path], on_change: Callable[[], None]) -> None:
        self._dirs = dirs
        self._on_change = on_change
        self._stop = threading.Event()

    def start(self) -> None:
        """Begins to watch, on a thread of its own."""
        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it would log every change
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, args=(loop,), name="file-events", daemon=True).start()

    def stop(self) -> None:
        """Lets the thread end."""
        self._stop.set()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            for _ in watch(
                *(path for path in self._dirs if path.is_dir()),
                watch_filter=None,
                debounce=_GROUP_MS,
                step=_STEP_MS,
                stop_event=self._stop,
                force_polling=False,
                ignore_permission_denied=True,
            ):
                loop.call_soon_threadsafe(self._on_change)
        except Exception as error:
            if not self._stop.is_set():
                _log.warning(
                    "no file-system events, changes are found by polling alone",
                    reason=f"{type(error).__name__}: {error}",
                )
