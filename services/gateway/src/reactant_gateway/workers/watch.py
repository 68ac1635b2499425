"""The watch over one worker: probes it on its own schedule, takes it out of service and back in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Protocol, final

from reactant_core.clock import Clock
from reactant_core.errors import clip
from reactant_core.logs import get_logger
from reactant_gateway.workers.handle import WorkerHandle
from reactant_gateway.workers.models import ModelReader
from reactant_gateway.workers.probe import Probe, probe
from reactant_policy.routing.health import (
    FIRST_RETRY_SECONDS,
    Outcome,
    ProbeState,
    after_loss,
    after_probe,
    next_probe_seconds,
)
from reactant_policy.routing.table import WorkerView
from reactant_policy.routing.work import Totals

_log = get_logger(__name__)

# A worker's return must not hang on a peer that takes the call and says nothing.
_ADMISSION_SECONDS = 5.0


class Link(Protocol):
    """The connections that requests to one worker travel on."""

    @property
    def connected(self) -> bool:
        """At least one HTTP/2 connection is established."""
        ...

    async def connect(self) -> bool:
        """Establishes an HTTP/2 connection unless there is one; False when that failed."""
        ...


@final
class WorkerWatch:
    """Probes one worker for as long as `run` runs. Lives on the event loop."""

    def __init__(
        self,
        handle: WorkerHandle,
        link: Link,
        *,
        before_admission: Callable[[WorkerHandle], Awaitable[None]],
        changed: Callable[[WorkerView], None],
        clock: Clock,
        probe_seconds: float,
        timeout_seconds: float,
    ) -> None:
        self.handle = handle
        self._link = link
        self._before_admission = before_admission
        self._changed = changed
        self._clock = clock
        self._probe_seconds = probe_seconds
        self._timeout_seconds = timeout_seconds
        self._reader = ModelReader()
        self._state = ProbeState()
        self._said: bool | None = None
        self.expect_end = False
        # A probe that began before a loss says nothing about the time after it.
        self._losses = 0
        self._wake = asyncio.Event()
        self._suspected = False
        self._stopped = False
        self._probed = -FIRST_RETRY_SECONDS
        self._waiters: list[asyncio.Future[None]] = []
        self._looked = asyncio.Event()

    @property
    def totals(self) -> Mapping[str, Totals]:
        """The counters of its models at the last reading, which another reading leaves as they are."""
        return self._reader.totals

    async def run(self) -> None:
        """Probes until cancelled; a fault of the worker never ends it."""
        try:
            while True:
                await self._pause()
                await self._round()
                self._looked.set()
        finally:
            self._stopped = True
            self._looked.set()
            self._release(self._waiters)

    def set_times(self, *, probe_seconds: float, timeout_seconds: float) -> None:
        """Other times from the next probe on."""
        self._probe_seconds, self._timeout_seconds = probe_seconds, timeout_seconds
        self._wake.set()

    def lost(self, reason: str) -> None:
        """Takes the worker out of service now; a probe soon brings it back."""
        self._losses += 1
        if not self._state.available:
            self.handle.reason = reason
            return
        self._suspected = False
        self._settle(after_loss(self._state), reason)
        self._release(self._waiters)
        self._wake.set()

    def suspect(self) -> None:
        """Probes a worker in service now, but not more often than every 0.25 s."""
        if self._state.available:
            self._suspected = True
            self._wake.set()

    async def wait_looked(self) -> None:
        """Returns when the first probe is done, or there will be none."""
        await self._looked.wait()

    async def probe_now(self) -> None:
        """Returns when a probe that begins from now on is done, at once for a worker out of service."""
        if self._stopped or not self._state.available:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wake.set()
        await waiter

    async def _pause(self) -> None:
        while (seconds := self._pause_seconds()) > 0:
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _pause_seconds(self) -> float:
        if self._waiters:
            return 0.0
        seconds = next_probe_seconds(self._state, self._probe_seconds)
        if self._suspected:
            return min(seconds, self._probed + FIRST_RETRY_SECONDS - self._clock.monotonic())
        return seconds

    async def _round(self) -> None:
        waiters, self._waiters = self._waiters, []
        self._suspected = False
        losses, was_out = self._losses, not self._state.available
        try:
            found = await self._probe()
            if found.outcome is Outcome.READY and was_out:
                found = await self._admitted(found)
            if losses == self._losses:
                self._settle(after_probe(self._state, found.outcome), found.reason, found)
            elif was_out:
                # Lost again while it came back: the wait grows, or the two would chase each other.
                self._settle(after_probe(self._state, Outcome.REFUSED), self.handle.reason, found)
        finally:
            self._probed = self._clock.monotonic()
            self._release(waiters)

    async def _probe(self) -> Probe:
        try:
            return await probe(self.handle, self._reader, self._timeout_seconds)
        except Exception as error:
            if not self._state.failures:
                _log.exception("probe of a worker failed unexpectedly", worker=self.handle.name)
            return Probe(Outcome.FAILED, clip(f"its answers are of no use: {error!r}"))

    async def _admitted(self, found: Probe) -> Probe:
        """`found` once requests can travel; a failure when they cannot."""
        try:
            async with asyncio.timeout(_ADMISSION_SECONDS):
                await self._before_admission(self.handle)
        except Exception:
            _log.exception(
                "preparing a worker failed; it gets requests all the same", worker=self.handle.name
            )
        try:
            async with asyncio.timeout(_ADMISSION_SECONDS):
                connected = await self._link.connect()
        except Exception as error:
            return replace(found, outcome=Outcome.REFUSED, reason=clip(f"no HTTP/2 connection: {error!r}"))
        return found if connected else replace(found, outcome=Outcome.REFUSED, reason="no HTTP/2 connection")

    def _settle(self, state: ProbeState, reason: str, found: Probe | None = None) -> None:
        handle, self._state = self.handle, state
        handle.reason = "" if state.available else reason
        models = handle.view.models if found is None or found.models is None else found.models
        view = replace(handle.view, available=state.available, models=models)
        if found is not None and found.discipline is not None:
            budget = found.weight_budget_bytes
            view = replace(view, discipline=found.discipline, weight_budget_bytes=budget)
        if view != handle.view:
            handle.view = view
            self._changed(view)
        if self._said is not state.available:
            # Not yet there at the start, or gone at the end, is as it should be.
            absent = found is not None and found.outcome in (Outcome.REFUSED, Outcome.NOT_READY)
            expected = self.expect_end or (self._said is None and absent)
            self._said = state.available
            if state.available:
                _log.info("worker is available", worker=handle.name, models=len(models))
            elif expected:
                _log.info("worker is unavailable", worker=handle.name, reason=reason)
            else:
                _log.warning("worker is unavailable", worker=handle.name, reason=reason)

    @staticmethod
    def _release(waiters: list[asyncio.Future[None]]) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        waiters.clear()
