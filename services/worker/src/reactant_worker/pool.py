"""Threads for work that may never end: hooks, and the loading of bundles."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, final

T = TypeVar("T")


class ForeignExit(Exception):
    """Code on a pool thread raised what would have ended a thread or the process."""


@final
@dataclass(frozen=True, slots=True)
class _Job:
    future: asyncio.Future[Any]
    call: Callable[[], Any]
    tag: str


@final
class WorkPool:
    """Runs calls on a fixed number of daemon threads, first come first served.

    Against concurrent.futures: a call cancelled while it waits is forgotten at once, its arguments
    included, and a thread that is stuck does not keep the process from ending.
    """

    def __init__(self, threads: int, name: str, *, niceness: int = 0) -> None:
        """`niceness` above 0 makes the threads give way to others for processor time; see nice(2)."""
        self._niceness = niceness
        self._threads = threads
        self._name = name
        self._started = 0
        self._jobs: OrderedDict[int, _Job] = OrderedDict()
        self._numbers = itertools.count()
        self._waiting: Counter[str] = Counter()
        self._changed = threading.Condition(threading.Lock())
        self._idle = 0
        self._running = 0
        self._closed = False
        self._pid = os.getpid()

    @property
    def running(self) -> int:
        """Calls a thread is in."""
        return self._running

    def waiting(self, tag: str) -> int:
        """Calls with this tag that no thread has begun."""
        return self._waiting[tag]

    async def run(self, function: Callable[..., T], *arguments: Any, tag: str = "") -> T:
        """Waits for `function(*arguments)`; `tag` is what `waiting` counts it under.

        What it raises comes out here; SystemExit and its like as ForeignExit. Cancelled while it
        waits for a thread it never runs; while it runs, its outcome is discarded.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        number = next(self._numbers)
        with self._changed:
            if self._closed:
                raise RuntimeError(f"the {self._name} pool is closed")
            self._jobs[number] = _Job(future, lambda: function(*arguments), tag)
            self._waiting[tag] += 1
            # A thread that was notified counts as idle until it wakes: compare with the calls, not with 0.
            if len(self._jobs) <= self._idle or self._started == self._threads:
                self._changed.notify()
            else:
                self._started += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        try:
            return await future
        except asyncio.CancelledError:
            with self._changed:
                if self._jobs.pop(number, None) is not None:
                    self._leave(tag)
            raise

    def _leave(self, tag: str) -> None:
        self._waiting[tag] -= 1
        if not self._waiting[tag]:
            del self._waiting[tag]

    def close(self) -> None:
        """Lets idle threads end, and busy ones after their call; what waits is never run."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._waiting.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        if self._niceness:
            os.nice(self._niceness)  # on Linux that of the calling thread, and of those that it starts
        while (job := self._next()) is not None:
            result: Any = None
            error: Exception | None = None
            try:
                result = job.call()
            except (StopIteration, StopAsyncIteration) as stop:
                # A future cannot carry these: the awaiting coroutine would take them for its own end.
                error = ForeignExit(f"{type(stop).__name__}: {stop}")
                error.__cause__ = stop
            except Exception as failure:
                error = failure
            except BaseException as leaving:
                error = ForeignExit(f"{type(leaving).__name__}: {leaving}")
                error.__cause__ = leaving
            if os.getpid() != self._pid:
                # A child the call forked came back: a second server, with our sockets and one thread.
                os._exit(0 if error is None else 1)
            with self._changed:
                self._running -= 1
            _deliver(job.future, result, error)
            # Not kept alive while the thread waits for the next call.
            del job, result, error

    def _next(self) -> _Job | None:
        with self._changed:
            while not self._closed:
                if self._jobs:
                    job = self._jobs.popitem(last=False)[1]
                    self._leave(job.tag)
                    self._running += 1
                    return job
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
        return None


def _deliver(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    try:
        future.get_loop().call_soon_threadsafe(_settle, future, result, error)
    except RuntimeError:
        # The loop is closed: nobody waits any more.
        return


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
