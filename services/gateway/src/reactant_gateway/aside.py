"""Long work beside the event loop: on a thread that keeps stepping aside for it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, final

_T = TypeVar("_T")

# Who only hands the interpreter lock back takes it again before another thread has woken up.
_PAUSE_SECONDS: Final = 50e-6
_STEP_SECONDS: Final = 0.5e-3


async def aside(work: Callable[[], Generator[None, None, _T]]) -> _T:
    """What the generator of `work` returns, run on a thread.

    At a `yield` half a millisecond or more after the last one heeded, the event loop gets its turn. Without
    one, it waits for the interpreter's switch interval, 5 ms.
    """
    return await asyncio.to_thread(_run, work)


def _run(work: Callable[[], Generator[None, None, _T]]) -> _T:
    steps = work()
    paused = time.perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
        if time.perf_counter() - paused >= _STEP_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            paused = time.perf_counter()


@final
class CollectorPause:
    """Keeps the garbage collector from starting by itself.

    For work that makes very many objects and no cycles: the collector would go through all of them again and
    again, a third of a second at a time for half a million, every thread standing still.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._was_enabled = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Off inside; as it was before once the last holder is out. On one thread only."""
        if self._holders == 0:
            self._was_enabled = gc.isenabled()
            gc.disable()
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if self._holders == 0 and self._was_enabled:
                gc.enable()
