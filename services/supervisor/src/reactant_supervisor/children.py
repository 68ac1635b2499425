"""A child process: its start, its output, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import final

from reactant_core.lifecycle import die_with_parent
from reactant_supervisor.log_pipe import LogPipe
from reactant_supervisor.output import LineOutput
from reactant_supervisor.process_spec import ProcessSpec

_LAST_LINES_SECONDS = 1.0
_HOLD = b"."


@final
class Child:
    """One running process, in a session of its own so that a terminal's Ctrl-C reaches only us.

    It cannot outlive this process (parent-death signal, Linux), and nothing it started in its own
    process group outlives it.
    """

    def __init__(
        self, spec: ProcessSpec, process: asyncio.subprocess.Process, log: LogPipe, hold: int | None
    ) -> None:
        self.spec = spec
        self._process = process
        self._log = log
        self._hold = hold
        self._asked_to_stop = False

    @property
    def pid(self) -> int:
        """Process id, also its process group."""
        return self._process.pid

    async def wait(self) -> int:
        """Waits for the end and for its last lines; returns the exit code, -n for signal n.

        May be called by several tasks.
        """
        code = await self._process.wait()
        self.release()
        self._kill_group()
        self._log.read_last_words()
        # Something that left the group may still hold the pipe: do not wait for it for ever.
        await asyncio.wait([self._log.closed], timeout=_LAST_LINES_SECONDS)
        self._log.close()
        await self._log.closed
        return code

    def terminate(self, *, held: bool) -> None:
        """Asks it to stop (SIGTERM, once); when `held`, with a pipe for that, to exit only at `release`."""
        if held and self._hold is not None:
            # Before the signal: whoever has nothing to drain looks at once.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._hold, _HOLD)
        # A second one means at once.
        if not self._asked_to_stop:
            self._asked_to_stop = True
            self._signal(signal.SIGTERM)

    def hang_up(self) -> bool:
        """Has it read its files anew (SIGHUP); False when the signal would end it, and is not sent."""
        if not _catches(self.pid, signal.SIGHUP):
            return False
        self._signal(signal.SIGHUP)
        return True

    def release(self) -> None:
        """Closes the pipe that may keep it from exiting, where it has one. May be repeated."""
        if self._hold is not None:
            os.close(self._hold)
            self._hold = None

    def kill(self) -> None:
        """Ends it and its process group at once (SIGKILL)."""
        self._kill_group()

    async def abandon(self) -> None:
        """Ends it at once and reads no more of it, also when a `wait` for it has been cancelled."""
        self._kill_group()
        self._log.close()
        self.release()
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


async def start_child(spec: ProcessSpec, output: LineOutput) -> Child:
    """Starts `spec`, its standard output and error line by line on `output`.

    Raises:
        OSError: it could not be started.
    """
    with contextlib.ExitStack() as ours:
        env, pass_fds, hold = dict(spec.env), spec.pass_fds, None
        if spec.hold_variable is not None:
            held, hold = os.pipe()
            ours.callback(os.close, held)
            env[spec.hold_variable] = str(held)
            pass_fds = (*pass_fds, held)
        try:
            process, log = await _start(spec, output, env, pass_fds)
        except BaseException:
            if hold is not None:
                os.close(hold)
            raise
        return Child(spec, process, log, hold)


async def _start(
    spec: ProcessSpec, output: LineOutput, env: dict[str, str], pass_fds: tuple[int, ...]
) -> tuple[asyncio.subprocess.Process, LogPipe]:
    loop = asyncio.get_running_loop()
    read_end, write_end = os.pipe()
    try:
        transport, log = await loop.connect_read_pipe(
            lambda: LogPipe(spec.name, output), os.fdopen(read_end, "rb", buffering=0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *spec.argv,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
                preexec_fn=_parent_death_guard(),
                pass_fds=pass_fds,
            )
        except BaseException:
            transport.close()
            raise
    finally:
        os.close(write_end)
    return process, log


def _parent_death_guard() -> partial[bool] | None:
    # SIGKILL, not SIGTERM: whoever starts this machine's supervisor again needs the ports at once.
    if sys.platform != "linux":
        return None
    return partial(die_with_parent, signal.SIGKILL, parent=os.getpid())


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for a signal, or ignores it; a signal without one would end it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt:", "SigIgn:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)
