"""Who may come in: draining, the in-flight cap, and each model's queue bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from reactant_core.errors import ModelUnavailable, ResourceExhausted
from reactant_worker.models.catalog import Entry
from reactant_worker.models.served import ServedModel


@final
class Admission:
    """Counts on the event loop; every refusal is made before anything of the request was started."""

    def __init__(
        self,
        *,
        max_concurrent_requests: int,
        max_queue_depth: int,
        queued: Callable[[ServedModel], int],
    ) -> None:
        self._max_concurrent = max_concurrent_requests
        self._max_depth = max_queue_depth
        self._queued = queued
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
        if self.draining:
            raise ModelUnavailable("the server is draining", not_started=True)
        if 0 < self._max_concurrent <= self.in_flight:
            raise ResourceExhausted(
                f"{self._max_concurrent} requests are in flight, the server takes no more", not_started=True
            )
        self.in_flight += 1
        self._idle.clear()

    def leave(self) -> None:
        """Counts a request out."""
        self.in_flight -= 1
        if not self.in_flight:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Waits until no request is in flight."""
        await self._idle.wait()

    def check_queue(self, entry: Entry, model: ServedModel) -> None:
        """Raises ResourceExhausted when the model's queue is full.

        A request in `preprocess` counts as queued: it comes back to the queue, and a bound that
        left it out would be exceeded then.
        """
        if entry.preparing + self._queued(model) >= self._max_depth:
            raise ResourceExhausted(
                f"model '{model.name}': the queue is full ({self._max_depth} requests)", not_started=True
            )
