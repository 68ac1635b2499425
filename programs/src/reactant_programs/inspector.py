"""The parent's side of `inspection`: one child process that parses artifacts, restarted when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, Final, final

REQUEST_TIMEOUT_SECONDS: Final = 300.0
"""Wall time until the child is given up. Damaged bytes that loop for ever end sooner, by processor time."""

_SCRIPT = Path(__file__).with_name("inspection.py")


class InspectorError(Exception):
    """The child gave no answer; the text says what became of it."""


@final
class Inspector:
    """Sends artifacts to the child, one at a time; safe to call from many threads.

    The child ends by itself after 30 s without work and starts again (0.2 to 0.6 s) with the next request.
    """

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-P", str(_SCRIPT))) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._noise: IO[bytes] | None = None

    def inspect(self, data: bytes) -> tuple[dict[str, Any], bytes]:
        """The child's findings (JSON) and the normalised artifact.

        Raises:
            InspectorError: the child died on it, ran out of memory or time, or cannot be started.
        """
        with self._lock:
            try:
                return self._exchange(data)
            except _Gone:
                # Ended by itself while idle, or by the kernel's out-of-memory killer, which may have been
                # after somebody else's memory: neither says anything about this artifact.
                if self._exit_code() not in (0, -signal.SIGKILL):
                    raise InspectorError(self._obituary()) from None
                self._stop()
            try:
                return self._exchange(data)
            except _Gone:
                raise InspectorError(self._obituary()) from None

    def close(self) -> None:
        """Ends the child, if one runs."""
        with self._lock:
            self._stop()

    def _exchange(self, data: bytes) -> tuple[dict[str, Any], bytes]:
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
        try:
            child.stdin.write(struct.pack("<Q", len(data)))
            child.stdin.write(data)
            child.stdin.flush()
        except OSError:
            raise _Gone from None
        found = json.loads(self._read(child.stdout, self._length(child.stdout, deadline), deadline))
        portable = self._read(child.stdout, self._length(child.stdout, deadline), deadline)
        return found, portable

    def _length(self, stream: IO[bytes], deadline: float) -> int:
        (length,) = struct.unpack("<Q", self._read(stream, 8, deadline))
        return int(length)

    def _read(self, stream: IO[bytes], count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            if not select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self._stop()
                raise InspectorError(f"parsing it took longer than {REQUEST_TIMEOUT_SECONDS:.0f} s")
            piece = os.read(stream.fileno(), min(count - len(data), 1 << 20))
            if not piece:
                raise _Gone
            data += piece
        return bytes(data)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self._stop()
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        try:
            self._child = subprocess.Popen(  # noqa: S603 - our own script
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._noise,
                start_new_session=True,  # Ctrl-C in a terminal is the server's to handle
            )
        except OSError as error:
            raise InspectorError(f"the artifact inspector cannot be started: {error}") from error
        # Collects the child when it ends by itself, so that no zombie stays.
        threading.Thread(target=self._child.wait, name="artifact-inspector", daemon=True).start()
        return self._child

    def _exit_code(self) -> int:
        return self._child.wait() if self._child is not None else 0

    def _obituary(self) -> str:
        code = self._exit_code()
        if code == -signal.SIGXCPU:
            return "parsing it takes too long; it may be damaged"
        if code == -signal.SIGKILL:
            return "the artifact inspector was killed twice (out of memory?)"
        if code < 0:
            return f"the parser crashed on it (signal {-code}); it is damaged"
        last = ""
        if self._noise is not None:
            self._noise.seek(0)
            lines = self._noise.read()[-4096:].decode("utf-8", "replace").strip().splitlines()
            last = f": {lines[-1][:300]}" if lines else ""
        return f"the artifact inspector ended with exit code {code}{last}"

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            child.kill()
            child.wait()
        noise, self._noise = self._noise, None
        if noise is not None:
            noise.close()


class _Gone(Exception):
    """The child closed its end."""
