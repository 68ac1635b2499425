"""Follows the model directories: what is copied there, changed, renamed or removed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

from reactant_core.bundle.errors import BundleError
from reactant_core.logs import get_logger
from reactant_policy.lifecycle import Known, Plan, plan, unread
from reactant_policy.looks import FileMark, Sighting
from reactant_worker.models.digests import DigestReader
from reactant_worker.models.events import FileEvents
from reactant_worker.models.loader import Loader, Move
from reactant_worker.models.repository import Repository
from reactant_worker.pool import WorkPool

_log = get_logger(__name__)

_PAUSE_SECONDS: Final = 1.0
"""Between looks after an event: files that stay the same for so long are taken to be complete."""

_FRESH: Final = "it has just appeared, waiting for its files to stay the same"


@final
class RepositoryWatch:
    """Looks every `poll_seconds`, or soon after an event, and lets the loader do what the looks ask for.

    Looking and reading happen on threads of its own: a file system that hangs holds up nothing else.
    """

    def __init__(self, repository: Repository, loader: Loader, poll_seconds: float) -> None:
        self._repository = repository
        self._loader = loader
        self._poll_seconds = poll_seconds
        self._pause_seconds = min(poll_seconds, _PAUSE_SECONDS)
        self._pool = WorkPool(1, "look")
        self._digests = DigestReader(self._on_news)
        self._before: Sighting | None = None
        self._now: Sighting | None = None
        self._woken = asyncio.Event()
        self._hurried_looks = 0
        self._news = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follows the directories until it is cancelled; loads that are under way go on."""
        events = FileEvents(self._repository.dirs, self._on_event)
        events.start()
        try:
            while True:
                await _guarded(self._look())
                await self._rest()
        finally:
            events.stop()
            self._digests.close()
            self._pool.close()

    def _on_event(self) -> None:
        # The first look finds what changed, the second whether that was all.
        self._hurried_looks = 2
        self._woken.set()

    def _on_news(self) -> None:
        self._news = True
        self._woken.set()

    async def _rest(self) -> None:
        """Waits until the next look is due; what is read or loaded meanwhile is acted on at once."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while (due := begun + self._interval()) > loop.time():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._woken.wait()
            self._woken.clear()
            if self._news:
                self._news = False
                await _guarded(self._act())
        self._hurried_looks = max(0, self._hurried_looks - 1)

    def _interval(self) -> float:
        return self._pause_seconds if self._hurried_looks else self._poll_seconds

    async def _look(self) -> None:
        self._before, self._now = self._now, await self._pool.run(self._repository.sight)
        if self._before is not None:
            _report(self._before.unreadable, self._now.unreadable)
        await self._act()

    async def _act(self) -> None:
        """Does what the last two looks ask for, as far as the contents that it takes are known."""
        if self._now is None:
            return
        known, digests = self._loader.known(), self._digests.known
        if self._before is not None:
            steps = plan(self._before, self._now, known, digests)
            for name in steps.announce:
                await self._loader.expect(name, _path(self._now, name), _FRESH)
            self._follow(steps, self._now)
            self._digests.request(_files(self._now, steps.read))
            self._forget(self._before, self._now, known)
        self._digests.read_ahead(_files(self._now, unread(self._now, known, digests)))

    def _follow(self, steps: Plan, now: Sighting) -> None:
        for name in steps.load:
            self._start(self._loader.load(name, _path(now, name), now.bundles[name].look))
        for name, changed in steps.reload:
            _log.info("bundle has changed", model=name, files=sorted(changed))
            self._start(self._loader.load(name, _path(now, name), now.bundles[name].look, changed))
        if steps.rename:
            self._loader.rename(
                [Move(old, new, _path(now, new), now.bundles[new].look) for old, new in steps.rename]
            )
        for name in steps.keep:
            self._loader.keep(name, _path(now, name), now.bundles[name].look)
        for name in steps.unload:
            _log.info("bundle is gone", model=name)
            self._start(self._loader.unload(name))

    def _forget(self, before: Sighting, now: Sighting, known: Mapping[str, Known]) -> None:
        if before.bundles == now.bundles:
            return
        looks = [found.look for found in (*before.bundles.values(), *now.bundles.values())]
        looks += [
            look for name in known.values() for look in (name.served, name.attempted) if look is not None
        ]
        self._digests.forget({mark for look in looks for mark in look.values()})

    def _start(self, operation: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_told(operation))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._on_news()


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        _log.exception("the model directories could not be followed, trying again")


async def _told(operation: Coroutine[Any, Any, None]) -> None:
    """Runs an operation of the loader, which tells the index and the log when it fails."""
    with contextlib.suppress(BundleError):
        await operation


def _report(before: frozenset[str], now: frozenset[str]) -> None:
    for path in sorted(now - before):
        _log.warning("model directory cannot be read, its models stay as they are", path=path)
    for path in sorted(before - now):
        _log.info("model directory can be read again", path=path)


def _path(now: Sighting, name: str) -> Path:
    return Path(now.bundles[name].directory) / name


def _files(now: Sighting, files: Iterable[tuple[str, str]]) -> Iterator[tuple[FileMark, Path]]:
    for name, path in files:
        yield now.bundles[name].look[path], _path(now, name) / path
