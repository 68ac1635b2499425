"""One stream for the lines of many processes: whole, prefixed, and never in the way of the event loop."""

from __future__ import annotations

import io
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import final

from reactant_supervisor.lines import LineSplitter

HIGH_WATER_BYTES = 1024 * 1024
"""Unwritten output above which the sources are asked to pause."""

_WRITE_BYTES = 256 * 1024


@final
class LineOutput:
    """Writes blocks of whole lines to a file descriptor from a thread of its own.

    A reader that is slow or stopped (a paused terminal, a full pipe) therefore never holds up signals
    or restarts: `write` never blocks. Instead it answers False above the high-water mark, and the
    source waits for its `on_drained` callback before it produces more. Order is kept over all
    sources. When the descriptor fails for good (its reader is gone) lines are dropped silently: there
    is nobody left to tell, and models go on being served.
    """

    def __init__(self, descriptor: int, *, high_water_bytes: int = HIGH_WATER_BYTES) -> None:
        self._descriptor = descriptor
        self._high_water = high_water_bytes
        self._blocks: deque[bytes] = deque()
        self._pending = 0
        self._waiting: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._closing = False
        self._broken = False
        self._thread = threading.Thread(target=self._write_out, name="output", daemon=True)

    def start(self) -> None:
        """Starts the writing thread."""
        self._thread.start()

    def isatty(self) -> bool:
        """Whether people are reading."""
        return os.isatty(self._descriptor)

    def write(self, block: bytes) -> bool:
        """Queues whole lines; False asks the source to pause until `on_drained`. Thread-safe."""
        with self._changed:
            if block and not self._broken:
                self._blocks.append(block)
                self._pending += len(block)
                self._changed.notify()
            return self._pending <= self._high_water

    def on_drained(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, from the writing thread or at once, when there is room again."""
        with self._changed:
            if self._pending > self._high_water // 2:
                self._waiting.append(callback)
                return
        callback()

    def close(self, timeout_seconds: float = 2.0) -> bool:
        """Writes out what is queued; False when the reader did not take it in time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _write_out(self) -> None:
        while block := self._next_block():
            if not self._broken:
                self._write_all(block)
            self._settle(len(block))

    def _write_all(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:
                # Someone who shares the terminal or pipe made it non-blocking: wait for room.
                select.select([], [self._descriptor], [])
            except OSError:
                self._broken = True
                return

    def _next_block(self) -> bytes:
        """The next bytes to write, up to a size that keeps one write short; empty when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or self._closing)
            taken: list[bytes] = []
            size = 0
            while self._blocks and size < _WRITE_BYTES:
                taken.append(self._blocks.popleft())
                size += len(taken[-1])
        return b"".join(taken)

    def _settle(self, written: int) -> None:
        with self._changed:
            self._pending -= written
            if self._broken:
                self._blocks.clear()
                self._pending = 0
            if self._pending > self._high_water // 2:
                return
            callbacks, self._waiting = self._waiting, []
        for callback in callbacks:
            callback()


def prefixed(name: str, lines: list[bytes]) -> bytes:
    """`lines` as one block, each beginning with `[name] `."""
    head = f"[{name}] ".encode()
    return b"".join(head + line + b"\n" for line in lines)


@final
class PrefixedStream(io.TextIOBase):
    """The supervisor's own log lines on the same output, under a prefix of their own."""

    def __init__(self, name: str, output: LineOutput) -> None:
        super().__init__()
        self._name = name
        self._output = output
        self._splitter = LineSplitter()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._output.isatty()

    def write(self, text: str) -> int:
        self._output.write(prefixed(self._name, self._splitter.feed(text.encode("utf-8", "replace"))))
        return len(text)
