"""Asyncio's side of the engine's port: await an outcome, cancel by cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import final

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.errors import ServingError
from reactant_worker.engine.port import Completed, Engine, Outcome, Submission


@final
class EngineBridge:
    """Turns submissions into awaitables on one event loop.

    Submissions of one loop iteration reach the engine together: requests that arrived together are
    seen together when the next batch is chosen, at the price of one lock and one wake-up.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock = SYSTEM_CLOCK) -> None:
        self._loop = loop
        self._clock = clock
        self._engine: Engine | None = None
        self._buffer: list[Submission] = []
        self._buffered: dict[str, int] = {}

    def connect(self, engine: Engine) -> None:
        """Sets the engine whose `Delivery` is `deliver`."""
        self._engine = engine

    async def run(self, submission: Submission) -> Completed:
        """Submits and waits. Raises the `ServingError` the engine answered with.

        When the awaiting task is cancelled, a request that still waits never reaches the device.
        """
        future: asyncio.Future[Completed] = self._loop.create_future()
        submission.tag = future
        if not self._buffer:
            self._loop.call_soon(self._flush)
        self._buffer.append(submission)
        self._buffered[submission.model] = self._buffered.get(submission.model, 0) + 1
        try:
            return await future
        except asyncio.CancelledError:
            self._withdraw(submission)
            raise

    def buffered(self, model: str) -> int:
        """Requests of a model that the engine does not know of yet."""
        return self._buffered.get(model, 0)

    def deliver(self, outcomes: Sequence[tuple[Submission, Outcome]]) -> None:
        """The engine's `Delivery`; thread-safe."""
        try:
            self._loop.call_soon_threadsafe(self._resolve, outcomes)
        except RuntimeError:
            # The loop is closed: nobody waits for an answer any more.
            return

    def _withdraw(self, submission: Submission) -> None:
        if submission in self._buffer:
            self._buffer.remove(submission)
            self._buffered[submission.model] -= 1
        elif self._engine is not None:
            self._engine.cancel(submission)

    def _flush(self) -> None:
        batch, self._buffer = self._buffer, []
        self._buffered.clear()
        if batch and self._engine is not None:
            self._engine.submit(batch)

    def _resolve(self, outcomes: Sequence[tuple[Submission, Outcome]]) -> None:
        ended: float | None = None
        for submission, outcome in outcomes:
            future: asyncio.Future[Completed] = submission.tag
            if future.done():
                continue
            if isinstance(outcome, ServingError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
                ended = outcome.done
        if ended is not None and self._engine is not None:
            self._engine.delivered(self._clock.monotonic() - ended)
