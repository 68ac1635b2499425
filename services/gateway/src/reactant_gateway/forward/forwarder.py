"""What all exchanges of a gateway share: routing, connections, limits, counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

from reactant_gateway.metrics import GatewayMetrics
from reactant_gateway.router import Router
from reactant_gateway.workers.pool import WorkerLink
from reactant_policy.routing.admission import admit

RETRY_REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Of one request so much is kept for another attempt; a larger one is not retryable."""

RETRY_PROCESS_BYTES: Final = 256 * 1024 * 1024
"""Of all requests together."""


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, without the length prefix, and the cap of requests in flight on one worker."""

    max_request_bytes: int
    max_response_bytes: int
    max_in_flight_per_worker: int


class Counted(Protocol):
    """A client connection with its requests in flight."""

    in_flight: int


def _nothing(worker: str) -> None:
    pass


class Drains(Protocol):
    """A call that goes on until somebody ends it."""

    def drain(self) -> None:
        """Finish what has begun and end."""


@final
class Forwarder:
    """Lives on the event loop.

    Args:
        router: chooses the worker.
        links: connections by worker; may change while running.
        limits: see `Limits`.
        metrics: counts what clients saw.
        refresh: asks every worker once more what it serves.
        holders: workers that hold a shared-memory region.
        suspect: told of a worker that refused a request which the table sent there.

    Attributes:
        loop: the event loop it was made on.
        draining: nothing new is taken.
        in_flight: requests admitted and not answered.
        streams: streaming calls in progress.
        retained: bytes kept for another attempt.
    """

    def __init__(
        self,
        *,
        router: Router,
        links: Mapping[str, WorkerLink],
        limits: Limits,
        metrics: GatewayMetrics,
        refresh: Callable[[], Awaitable[None]],
        holders: Callable[[str], frozenset[str]],
        suspect: Callable[[str], None] = _nothing,
    ) -> None:
        # Asking asyncio for the running loop costs a system call on Python 3.11.
        self.loop = asyncio.get_running_loop()
        self.router = router
        self.links = links
        self.limits = limits
        self.metrics = metrics
        self.refresh = refresh
        self.holders = holders
        self.suspect = suspect
        self.draining = False
        self.in_flight = 0
        self.retained = 0
        self._active_connections = 0
        self.streams: set[Drains] = set()
        self._idle: Callable[[], None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def cap(self) -> int:
        """Most requests in flight in total."""
        return self.limits.max_in_flight_per_worker * max(1, len(self.links))

    def admit(self, connection: Counted) -> bool:
        """Counts a request of `connection` in, unless it would be one too many."""
        active = self._active_connections + (connection.in_flight == 0)
        if not admit(self.in_flight, self.cap, connection.in_flight, active):
            self.metrics.shed("in_flight")
            return False
        self._active_connections = active
        connection.in_flight += 1
        self.in_flight += 1
        return True

    def release(self, connection: Counted) -> None:
        """Counts a request out; once for each that was admitted."""
        connection.in_flight -= 1
        self.in_flight -= 1
        if connection.in_flight == 0:
            self._active_connections -= 1
        if self.in_flight == 0 and self._idle is not None:
            self._idle()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Calls back each time nothing is in flight any more, and now if nothing is."""
        self._idle = callback
        if self.in_flight == 0:
            callback()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` in the background; it answers for its own faults."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
