"""Who may come in: draining, the in-flight cap, and each model's queue bound."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import final

from reactant_core.errors import ModelUnavailable, ResourceExhausted
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.port import Engine
from reactant_worker.models.catalog import Entry
from reactant_worker.models.served import ServedModel
from reactant_worker.pool import WorkPool


@final
class QueueCount:
    """How many requests of a model are queued: waiting for a thread of hooks or metas, or for the device.

    One that is in `preprocess` is running, not queued. But while the device is busy it counts, since
    it is about to queue: a bound that left it out would be exceeded by as many hook threads as there are.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        bridge: EngineBridge,
        hook_pool: WorkPool,
        metas: Callable[[ServedModel], int],
    ) -> None:
        self._engine = engine
        self._bridge = bridge
        self._hook_pool = hook_pool
        self._metas = metas

    def __call__(self, entry: Entry) -> int:
        """Requests queued for a model, whichever of its versions they began with."""
        queued = waiting = 0
        for model in entry.versions:
            if model.meta:
                queued += self._metas(model)
                continue
            queued += self._bridge.buffered(model.key) + self._engine.depth(model.key)
            if entry.preparing:
                waiting += self._hook_pool.waiting(model.key)
        running = entry.preparing - waiting
        return queued + waiting + (running if running and self._engine.busy() else 0)


@final
class Admission:
    """Counts on the event loop; every refusal is made before anything of the request was started."""

    def __init__(
        self,
        *,
        max_concurrent_requests: int,
        max_queue_depth: int,
        queued: QueueCount,
    ) -> None:
        self._max_concurrent = max_concurrent_requests
        self._max_depth = max_queue_depth
        self._queued = queued
        self._refused = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.in_flight = 0
        self.draining = False

    @property
    def max_concurrent_requests(self) -> int:
        """The in-flight cap; 0 is none."""
        return self._max_concurrent

    def enter(self) -> None:
        """Counts a request in; raises ModelUnavailable while draining, ResourceExhausted at the cap."""
        if self.admits():
            self.in_flight += 1
            self._idle.clear()
            return
        if self.draining:
            self._refused += 1
            raise ModelUnavailable("the server is draining", not_started=True)
        raise ResourceExhausted(
            f"{self._max_concurrent} requests are in flight, the server takes no more", not_started=True
        )

    def admits(self) -> bool:
        """Whether `enter` would raise nothing."""
        return not self.draining and not 0 < self._max_concurrent <= self.in_flight

    def leave(self) -> None:
        """Counts a request out."""
        self.in_flight -= 1
        if not self.in_flight:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Waits until no request is in flight."""
        await self._idle.wait()

    async def wait_quiet(self, quiet_seconds: float, limit_seconds: float) -> None:
        """Waits until nobody has been refused for a while, or for `limit_seconds`.

        A refusal says that the request may go elsewhere; a call that meets a closing server does not
        always hear that.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                seen = -1
                while seen != self._refused:
                    seen = self._refused
                    await asyncio.sleep(quiet_seconds)

    def room(self, entry: Entry) -> int:
        """How many more requests the model's queue takes."""
        return self._max_depth - self._queued(entry)

    def check_queue(self, entry: Entry, model: ServedModel) -> None:
        """Raises ResourceExhausted when the model's queue is full."""
        if self.room(entry) <= 0:
            raise ResourceExhausted(
                f"model '{model.name}': the queue is full ({self._max_depth} requests)", not_started=True
            )
