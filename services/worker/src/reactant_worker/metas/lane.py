"""Threads that metas run on, and the queue for them."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TypeVar, final

from reactant_worker.pool import WorkPool

T = TypeVar("T")


@final
class Lane:
    """A fixed number of threads, first come first served. Used on the event loop only.

    Who waits is counted exactly, and leaves at once when cancelled. A thread stays taken until the call on
    it has returned, whether or not anybody still waits for the outcome.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = WorkPool(threads, name)
        self._free = threads
        # In the order of arrival, with the tag of each.
        self._queue: OrderedDict[asyncio.Future[None], str] = OrderedDict()
        self._queued: Counter[str] = Counter()

    @property
    def running(self) -> int:
        """Calls a thread is in."""
        return self._pool.running

    def waiting(self, tag: str) -> int:
        """Calls with this tag that have no thread yet."""
        return self._queued[tag]

    async def run(self, function: Callable[[], T], *, tag: str) -> T:
        """Waits for a thread and for `function` on it; `tag` is what `waiting` counts it under.

        Cancelled while it waits for a thread it never runs. Cancelled later it is not waited for.
        """
        await self._take(tag)
        running = asyncio.ensure_future(self._pool.run(function))
        running.add_done_callback(lambda _: self._give_back())
        return await asyncio.shield(running)

    def close(self) -> None:
        """Lets idle threads end, and busy ones after their call."""
        self._pool.close()

    async def _take(self, tag: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[turn] = tag
        self._queued[tag] += 1
        try:
            await turn
        except asyncio.CancelledError:
            if self._queue.pop(turn, None) is not None:
                self._leave(tag)
            elif not turn.cancelled():
                self._give_back()  # its turn had come just then
            raise

    def _give_back(self) -> None:
        while self._queue:
            turn, tag = self._queue.popitem(last=False)
            self._leave(tag)
            # One that was cancelled may not have woken yet to leave the queue.
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._free += 1

    def _leave(self, tag: str) -> None:
        self._queued[tag] -= 1
        if not self._queued[tag]:
            del self._queued[tag]
