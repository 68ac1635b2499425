"""Compiles one artifact after another for the CPU; a server runs it as a child process.

Tracing, and above all writing an executable out, keep an interpreter busy for tens of milliseconds at a
time, in which it answers nobody. Here that is nobody's interpreter.

On standard input: 8 bytes length (little endian) and a pickle of `Settings`, then likewise one of (number,
artifact) for each request. For each, in any order, on standard output: 8 bytes length, a pickle of `Answer`.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, final

from reactant_core.lifecycle import die_with_parent
from reactant_programs.artifact import Artifact

NICENESS: Final = 5
"""The compiler takes every core it gets: requests go first."""

LENGTH: Final = struct.Struct("<Q")


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """What the parent has and the child needs.

    Attributes:
        parent: process id.
        cache_dir: of the executables; see `enable_cache`.
        threads: compilations at a time.
        idle_seconds: after so long without work it ends.
    """

    parent: int
    cache_dir: Path
    threads: int
    idle_seconds: float


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: the entry under its key in JAX's cache, or why there is none."""

    number: int
    key: str = ""
    value: bytes = b""
    fault: str = ""


def write(stream: IO[bytes], value: object) -> None:
    """Sends one message."""
    data = pickle.dumps(value)
    stream.write(LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def read(stream: IO[bytes]) -> Any:
    """The next message; EOFError when there is none."""
    (length,) = LENGTH.unpack(_exactly(stream, LENGTH.size))
    return pickle.loads(_exactly(stream, length))  # noqa: S301 - the other end is our own process


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data


@final
class _Idle:
    """Ends the process when it has had nothing to do for a while; the parent starts another one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._busy = 0
        self._timer: threading.Timer | None = None
        self._wind()

    def begin(self) -> None:
        with self._lock:
            self._busy += 1
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def end(self) -> None:
        with self._lock:
            self._busy -= 1
            if not self._busy:
                self._wind()

    def _wind(self) -> None:
        self._timer = threading.Timer(self._seconds, self._ring)
        self._timer.daemon = True
        self._timer.start()

    def _ring(self) -> None:
        with self._lock:
            if not self._busy:
                os._exit(0)


def _build(number: int, artifact: Artifact) -> Answer:
    import jax

    from reactant_programs.cache import noting
    from reactant_programs.compile import compile_artifact

    try:
        with noting() as noted:
            compile_artifact(artifact, jax.devices("cpu")[0])
    except Exception as error:
        return Answer(number, fault=f"{type(error).__name__}: {error}")
    if len(noted) != 1:
        return Answer(number, fault=f"{len(noted)} cache entries came of it, not one")
    ((key, value),) = noted.items()
    return Answer(number, key, value)


def serve() -> None:
    """Answers until the parent closes the pipe or is gone, or has asked for nothing for a while."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not end up between the answers
    requests = sys.stdin.buffer
    settings: Settings = read(requests)
    die_with_parent(signal.SIGKILL, parent=settings.parent)

    from reactant_programs import compile  # noqa: A004, F401 - JAX is imported before this gives way
    from reactant_programs.cache import enable_cache
    from reactant_programs.settings import set_option

    set_option("jax_platforms", "cpu")
    enable_cache(settings.cache_dir)
    os.nice(NICENESS)  # of this thread, and of those that it starts from here on
    idle, writing = _Idle(settings.idle_seconds), threading.Lock()

    def work(number: int, artifact: Artifact) -> None:
        answer = _build(number, artifact)
        with writing:
            write(answers, answer)
        idle.end()

    with ThreadPoolExecutor(settings.threads) as pool:
        while True:
            try:
                number, artifact = read(requests)
            except EOFError:
                os._exit(0)  # nobody waits for what is still compiled
            idle.begin()
            pool.submit(work, number, artifact)
