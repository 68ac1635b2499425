"""How a service process starts, is asked to stop, and ends."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final

from reactant_core.logs import get_logger

if sys.platform != "win32":
    import resource

_log = get_logger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# A process manager signals the whole group while the supervisor hands the same request on: that is one.
_SAME_REQUEST_SECONDS = 1.0

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@final
class Stop:
    """What a service is asked from outside while it runs: to stop, and to read its files anew.

    Attributes:
        requested: set once, by the first signal or by `request`.
        reason: what set it, such as `SIGTERM`; None before.
        on_reload: called on the event loop at each SIGHUP; None, as at first, ignores the signal.
    """

    __slots__ = ("on_reload", "reason", "requested")

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.reason: str | None = None
        self.on_reload: Callable[[], None] | None = None

    def request(self, reason: str) -> None:
        """Asks for the stop from inside the process; only the first reason is kept."""
        if self.reason is None:
            self.reason = reason
        self.requested.set()

    def reload(self) -> None:
        """Does what SIGHUP does; an exception out of `on_reload` is logged and ends nothing."""
        if self.on_reload is None:
            _log.info("SIGHUP: nothing to reload")
            return
        try:
            self.on_reload()
        except Exception:
            _log.exception("reload failed")


def run(main: Callable[[Stop], Awaitable[int]]) -> int:
    """Runs `main` to its end on a new event loop (uvloop where there is one) and returns its exit code.

    The first SIGTERM or SIGINT sets `Stop.requested`; one that comes more than a second later ends the
    process at once with code 128 + signal, without clean-up, even when the loop is busy. SIGHUP, where the
    system has it, calls `Stop.on_reload` and never ends the process. An exception out
    of `main` is logged with its traceback and gives code 1. Must be called from the main thread; handlers
    found there are put back on return. The limit of open files is raised as far as the system lets it, for
    children too.
    """
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        return runner.run(_main(main))


def _raise_file_limit() -> None:
    # Every connection is a file, and 1,024 is what many systems start with.
    if sys.platform == "win32":
        return
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            _log.debug("limit of open files raised", before=soft, now=hard)
    except (OSError, ValueError) as error:
        _log.debug("limit of open files stays", reason=str(error))


async def _main(main: Callable[[Stop], Awaitable[int]]) -> int:
    stop = Stop()
    with _signals(stop, asyncio.get_running_loop()):
        try:
            return await main(stop)
        except Exception:
            _log.exception("service failed")
            return 1


@contextmanager
def _signals(stop: Stop, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    first: float | None = None

    # Not loop.add_signal_handler: its callbacks wait for the loop, and the second signal is for the case
    # where the loop does not turn any more.
    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = now
        elif now - first < _SAME_REQUEST_SECONDS:
            return
        else:
            os._exit(128 + number)
        loop.call_soon_threadsafe(stop.request, signal.Signals(number).name)

    def on_hangup(_: int, __: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop.reload)

    before = {number: signal.signal(number, on_signal) for number in STOP_SIGNALS}
    if sys.platform != "win32":
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, on_hangup)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


# Found once here: a child between fork and exec may not wait for the loader's lock.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(sig: signal.Signals = signal.SIGTERM, *, parent: int | None = None) -> bool:
    """Asks the kernel to send `sig` to this process when the thread that started it ends (Linux).

    Args:
        sig: what to send.
        parent: process id of the parent as the parent knew it. When that process is already gone, `sig`
            is sent right away, which closes the race between start and this call.

    Returns:
        False where the kernel offers no such thing.

    Raises:
        OSError: the kernel refused.
    """
    if sys.platform != "linux" or _LIBC is None:
        return False
    if _LIBC.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(sig), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), sig)
    return True
