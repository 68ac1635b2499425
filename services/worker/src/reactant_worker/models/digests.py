"""Contents of files, read once each on threads that give way to everything else."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Final, final

from reactant_core.bundle.errors import BundleError
from reactant_core.logs import get_logger
from reactant_policy.looks import FileMark
from reactant_worker.models.look import read_digest
from reactant_worker.pool import WorkPool

_log = get_logger(__name__)

_NICENESS: Final = 10

_unreadable = itertools.count()


@final
class DigestReader:
    """Hashes files on request, and ahead of requests when there are none.

    Attributes:
        known: digests by mark; a file that cannot be read has one that nothing else has.
    """

    def __init__(self, on_read: Callable[[], None]) -> None:
        """`on_read` is called on the event loop when all of a request is known."""
        self.known: dict[FileMark, str] = {}
        self._on_read = on_read
        # Two, so that a request does not wait for a file that is read ahead.
        self._pool = WorkPool(2, "read", niceness=_NICENESS)
        self._reading: set[FileMark] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ahead: asyncio.Task[None] | None = None

    def request(self, files: Iterable[tuple[FileMark, Path]]) -> None:
        """Reads these, and says when that is done."""
        wanted = [(mark, path) for mark, path in files if mark not in self._reading]
        if wanted:
            self._reading |= {mark for mark, _ in wanted}
            task = asyncio.create_task(self._read(wanted, self._on_read))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def read_ahead(self, files: Iterable[tuple[FileMark, Path]]) -> None:
        """Reads these when there is time, unless others are being read ahead still."""
        if self._ahead is None or self._ahead.done():
            self._ahead = asyncio.create_task(self._read(list(files), lambda: None))

    def forget(self, kept: Container[FileMark]) -> None:
        """Drops what is known of marks that are not among `kept`."""
        for mark in [mark for mark in self.known if mark not in kept]:
            del self.known[mark]

    def close(self) -> None:
        """Ends without waiting for the file that is being read."""
        self._pool.close()
        for task in (*self._tasks, *([] if self._ahead is None else [self._ahead])):
            task.cancel()

    async def _read(self, files: list[tuple[FileMark, Path]], done: Callable[[], None]) -> None:
        for mark, path in files:
            if mark not in self.known:
                try:
                    found = await self._pool.run(read_digest, path)
                except (BundleError, OSError) as error:
                    found = mark, f"unreadable {next(_unreadable)}: {error}"
                if found is not None:
                    self.known[found[0]] = found[1]
            self._reading.discard(mark)
        done()
