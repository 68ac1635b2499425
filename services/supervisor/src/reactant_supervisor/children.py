"""A child process: its start, its output, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from functools import partial
from typing import final

from reactant_core.lifecycle import die_with_parent
from reactant_supervisor.log_pipe import LogPipe
from reactant_supervisor.output import LineOutput
from reactant_supervisor.plan import ProcessSpec

_LAST_LINES_SECONDS = 1.0


@final
class Child:
    """One running process, in a session of its own so that a terminal's Ctrl-C reaches only us.

    It cannot outlive this process (parent-death signal, Linux), and nothing it started in its own
    process group outlives it.
    """

    def __init__(self, spec: ProcessSpec, process: asyncio.subprocess.Process, log: LogPipe) -> None:
        self.spec = spec
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Process id, also its process group."""
        return self._process.pid

    async def wait(self) -> int:
        """Waits for the end and for its last lines; returns the exit code, -n for signal n.

        May be called by several tasks.
        """
        code = await self._process.wait()
        self._kill_group()
        self._log.read_last_words()
        # Something that left the group may still hold the pipe: do not wait for it for ever.
        await asyncio.wait([self._log.closed], timeout=_LAST_LINES_SECONDS)
        self._log.close()
        await self._log.closed
        return code

    def terminate(self) -> None:
        """Asks it to stop (SIGTERM)."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Ends it and its process group at once (SIGKILL)."""
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


async def start_child(spec: ProcessSpec, output: LineOutput) -> Child:
    """Starts `spec`, its standard output and error line by line on `output`.

    Raises:
        OSError: it could not be started.
    """
    loop = asyncio.get_running_loop()
    read_end, write_end = os.pipe()
    try:
        transport, log = await loop.connect_read_pipe(
            lambda: LogPipe(spec.name, output), os.fdopen(read_end, "rb", buffering=0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *spec.argv,
                env=dict(spec.env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
                preexec_fn=_parent_death_guard(),
            )
        except BaseException:
            transport.close()
            raise
    finally:
        os.close(write_end)
    return Child(spec, process, log)


def _parent_death_guard() -> partial[bool] | None:
    # SIGKILL, not SIGTERM: whoever starts this machine's supervisor again needs the ports at once.
    if sys.platform != "linux":
        return None
    return partial(die_with_parent, signal.SIGKILL, parent=os.getpid())
