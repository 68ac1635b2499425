"""Watches every worker and keeps the routing table up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import final

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_gateway.router import Router
from reactant_gateway.workers.handle import WorkerHandle
from reactant_gateway.workers.watch import Link, WorkerWatch
from reactant_policy.routing.table import WorkerView, build_table, with_worker
from reactant_policy.routing.work import Totals

__all__ = ["Discovery", "Link"]

_REFRESH_SECONDS = 1.0


@final
class Discovery:
    """Which workers get requests, and for which models. Lives on the event loop."""

    def __init__(
        self,
        handles: Sequence[WorkerHandle] = (),
        *,
        router: Router,
        links: Mapping[str, Link],
        before_admission: Callable[[WorkerHandle], Awaitable[None]],
        clock: Clock = SYSTEM_CLOCK,
        probe_seconds: float = 10.0,
        probe_timeout_seconds: float = 2.0,
        refresh_seconds: float = _REFRESH_SECONDS,
    ) -> None:
        """Puts a table of these workers in force, none of them available yet.

        Args:
            handles: the workers; their names are distinct.
            router: gets a new table with every change.
            links: by worker, what must be connected before it gets requests; looked at in `add`.
            before_admission: runs before a worker (again) gets requests; its failure is logged, no more.
            clock: spaces refreshes and suspicions.
            probe_seconds: between probes of a worker in service.
            probe_timeout_seconds: a call without an answer in this time has failed.
            refresh_seconds: between refreshes that were not forced.
        """
        self._links = links
        self._before_admission = before_admission
        self._probe_seconds = probe_seconds
        self._probe_timeout_seconds = probe_timeout_seconds
        self._router = router
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._refreshed = clock.monotonic() - refresh_seconds
        self._next_refresh: asyncio.Task[None] | None = None
        self._refreshes: set[asyncio.Task[None]] = set()
        self._first_ready = asyncio.Event()
        self._watches: dict[str, WorkerWatch] = {}
        self._group: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        for handle in handles:
            self._watches[handle.name] = self._watch(handle)
        router.swap(build_table(handle.view for handle in handles))

    def _watch(self, handle: WorkerHandle) -> WorkerWatch:
        return WorkerWatch(
            handle,
            self._links[handle.name],
            before_admission=self._before_admission,
            changed=self._changed,
            clock=self._clock,
            probe_seconds=self._probe_seconds,
            timeout_seconds=self._probe_timeout_seconds,
        )

    def add(self, handle: WorkerHandle) -> None:
        """Watches one more worker, whose name is new."""
        self._watches[handle.name] = self._watch(handle)
        self._changed(handle.view)
        if self._group is not None:
            self._start(handle.name)

    def remove(self, name: str) -> None:
        """Lets a worker go: it is out of the table when this returns."""
        del self._watches[name]
        running = self._running.pop(name, None)
        if running is not None:
            running.cancel()
        views = [view for view in self._router.table.workers.values() if view.name != name]
        self._router.swap(build_table(views))

    def set_times(self, *, probe_seconds: float, probe_timeout_seconds: float) -> None:
        """Other times from the next probe of each worker on."""
        self._probe_seconds, self._probe_timeout_seconds = probe_seconds, probe_timeout_seconds
        for watch in self._watches.values():
            watch.set_times(probe_seconds=probe_seconds, timeout_seconds=probe_timeout_seconds)

    @property
    def handles(self) -> Sequence[WorkerHandle]:
        """Every worker, in the order they came."""
        return [watch.handle for watch in self._watches.values()]

    def ready_handles(self) -> list[WorkerHandle]:
        """The workers that get requests now."""
        return [handle for handle in self.handles if handle.ready]

    def totals(self) -> Mapping[str, Mapping[str, Totals]]:
        """The counters of every worker at the last look at it, by worker and model.

        A worker's are the very same object until it has been looked at again. One that could not be asked
        keeps those it had; one started anew counts from zero.
        """
        return {name: watch.totals for name, watch in self._watches.items()}

    async def wait_first_ready(self) -> None:
        """Returns when some worker has got as far as being ready."""
        await self._first_ready.wait()

    async def wait_looked(self) -> None:
        """Returns when every worker there is now has been looked at. Needs `run` to run."""
        await asyncio.gather(*(watch.wait_looked() for watch in self._watches.values()))

    def expect_end(self) -> None:
        """From now on workers may go without a warning: the node is stopping."""
        for watch in self._watches.values():
            watch.expect_end = True

    async def run(self) -> None:
        """Watches the workers until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for name in self._watches:
                    self._start(name)
                await asyncio.Event().wait()
        finally:
            self._group = None
            for task in self._refreshes:
                task.cancel()

    def _start(self, name: str) -> None:
        assert self._group is not None
        self._running[name] = self._group.create_task(self._watches[name].run(), name=f"watch:{name}")

    def lost(self, worker: str, reason: str) -> None:
        """A connection to `worker` was refused or reset: it is out of the table when this returns."""
        if worker in self._watches:
            self._watches[worker].lost(reason)

    def suspect(self, worker: str) -> None:
        """Something is odd about `worker`: it is probed now."""
        if worker in self._watches:
            self._watches[worker].suspect()

    async def refresh(self, *, force: bool = False) -> None:
        """Returns when every worker in service was asked again, or left service.

        Callers share: at most one refresh a second begins, and one that came after the last began waits
        for the next. Needs `run` to run.

        Args:
            force: ask now, whenever the last was; concurrent forced callers still share.
        """
        if force:
            await self._probe_all()
            return
        if self._next_refresh is None:
            self._next_refresh = asyncio.get_running_loop().create_task(self._refresh_when_due())
            self._refreshes.add(self._next_refresh)
            self._next_refresh.add_done_callback(self._refreshes.discard)
        await asyncio.wait([self._next_refresh])

    async def _refresh_when_due(self) -> None:
        seconds = self._refreshed + self._refresh_seconds - self._clock.monotonic()
        try:
            if seconds > 0:
                await asyncio.sleep(seconds)
        finally:
            self._next_refresh = None
        self._refreshed = self._clock.monotonic()
        await self._probe_all()

    async def _probe_all(self) -> None:
        await asyncio.gather(*(watch.probe_now() for watch in self._watches.values()))

    def _changed(self, view: WorkerView) -> None:
        self._router.swap(with_worker(self._router.table, view))
        if view.available and not self._first_ready.is_set():
            self._first_ready.set()
