"""The parent's side of `compilation`: a child process that compiles, started again when it dies."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Final, final

from reactant_core.logs import get_logger
from reactant_programs import compilation
from reactant_programs.artifact import Artifact
from reactant_programs.compilation import Answer, Settings

IDLE_SECONDS: Final = 30.0
"""The child starts in 1 to 2 s, and holds some 200 MB: it stays for the next load of a series."""

_MAX_THREADS: Final = 4
"""XLA compiles on several threads by itself."""

_CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})

_START: Final = f"from {compilation.__name__} import serve; serve()"
"""Not a main module, whose classes would have other names on the two sides."""

_log = get_logger(__name__)


class CompilerCrash(BaseException):
    """The compiler crashed on a program. No Exception: JAX would compile it in this process instead."""


@final
class CompilerChild:
    """Has artifacts compiled in the child; safe to call from many threads."""

    def __init__(
        self,
        command: tuple[str, ...] = (sys.executable, "-P", "-c", _START),
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._command = command
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._alone = threading.Lock()
        self._life: _Life | None = None
        self._useless = False

    def build(self, artifact: Artifact, cache_dir: Path, key: str) -> bytes | None:
        """The entry of JAX's cache under `key`, compiled now; None when that is left to the caller.

        Raises:
            CompilerCrash: the compiler crashes on it, also when it compiles nothing else.
        """
        if self._useless:
            return None
        try:
            try:
                answer = self._running(cache_dir).ask(artifact)
            except _Ended as end:
                if end.code and not end.crash:
                    raise
                # It ended by itself while this was on the way, or crashed on this or another program.
                answer = self._retry(artifact, cache_dir)
        except _Ended as end:
            if end.crash:
                raise CompilerCrash(f"the compiler crashes on it ({end})") from None
            _log.warning(
                "compiling in the server's process instead", file=artifact.path.name, reason=str(end)
            )
            return None
        if answer.fault:
            return None  # the caller gets the same error, with its type
        if answer.key != key:
            self._useless = True
            _log.warning("the compiler process is set up differently, compiling in the server's from now on")
            return None
        return answer.value

    def close(self) -> None:
        """Ends the child, if one runs."""
        with self._lock:
            if self._life is not None:
                self._life.close()

    def _running(self, cache_dir: Path) -> _Life:
        with self._lock:
            if self._life is None or self._life.ended or self._life.settings.cache_dir != cache_dir:
                if self._life is not None:
                    self._life.close()
                self._life = self._begin(cache_dir)
            return self._life

    def _retry(self, artifact: Artifact, cache_dir: Path) -> Answer:
        with self._alone:
            life = self._begin(cache_dir)
            try:
                return life.ask(artifact)
            finally:
                life.close()

    def _begin(self, cache_dir: Path) -> _Life:
        threads = min(len(os.sched_getaffinity(0)), _MAX_THREADS)
        return _Life(self._command, Settings(os.getpid(), cache_dir, threads, self._idle_seconds))


class _Ended(Exception):
    """The child is gone: its exit code, negative for a signal, and what it said last."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.crash = -code in _CRASHES


@final
class _Life:
    """One child, from its start to its end."""

    def __init__(self, command: tuple[str, ...], settings: Settings) -> None:
        self.settings = settings
        self.ended = False
        self._command = command
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Answer]] = {}
        self._end = _Ended(0, "")
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False
        started: Future[None] = Future()
        # The kernel ends the child when the thread that started it ends: that thread reads its answers.
        threading.Thread(target=self._live, args=(started,), name="compiler-child", daemon=True).start()
        started.result()

    def ask(self, artifact: Artifact) -> Answer:
        """Waits for the answer; raises _Ended."""
        future: Future[Answer] = Future()
        with self._lock:
            if self.ended or self._child is None or self._child.stdin is None:
                raise self._end
            number = next(self._numbers)
            self._waiting[number] = future
            # A pipe that is closed: the thread that reads will see the end.
            with contextlib.suppress(OSError):
                compilation.write(self._child.stdin, (number, artifact))
        return future.result()

    def close(self) -> None:
        """Ends the child; who still waits compiles for himself."""
        if self._child is not None:
            self._child.kill()

    def _live(self, started: Future[None]) -> None:
        with tempfile.TemporaryFile() as noise:
            try:
                self._child = child = subprocess.Popen(  # noqa: S603 - our own module
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=noise,
                    start_new_session=True,  # Ctrl-C in a terminal is the server's to handle
                )
            except OSError as error:
                self._finish(_Ended(1, f"the compiler process cannot be started: {error}"))
                started.set_result(None)
                return
            assert child.stdin is not None
            assert child.stdout is not None
            with contextlib.suppress(OSError):
                compilation.write(child.stdin, self.settings)
            started.set_result(None)
            with contextlib.suppress(EOFError, OSError):
                while True:
                    answer: Answer = compilation.read(child.stdout)
                    with self._lock:
                        future = self._waiting.pop(answer.number)
                    future.set_result(answer)
            child.kill()  # it has closed its end: there is nothing more to come
            code = child.wait()
            noise.seek(0)
            lines = noise.read()[-4096:].decode("utf-8", "replace").strip().splitlines()
            self._finish(_Ended(code, _obituary(code, lines[-1] if lines else "")))
            for stream in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    stream.close()

    def _finish(self, end: _Ended) -> None:
        with self._lock:
            self.ended, self._end = True, end
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for future in waiting:
            future.set_exception(_Ended(end.code, str(end)))


def _obituary(code: int, said: str) -> str:
    if code < 0:
        return f"the compiler process was ended by signal {-code}"
    return f"the compiler process ended with exit code {code}" + (f": {said[:300]}" if said else "")
