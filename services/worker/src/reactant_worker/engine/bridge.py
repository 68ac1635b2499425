"""The event loop's side of the engine's port: outcomes awaited, or settled by a call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, final

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.errors import ServingError
from reactant_worker.engine.port import Completed, Engine, Outcome, Submission


class Waiter(Protocol):
    """Who waits for the outcome of a submission; its `tag`."""

    def settle(self, outcome: Outcome) -> bool:
        """Takes the outcome, on the event loop; False when nobody waits any more. It must not raise."""
        ...


@final
class _Awaiting:
    """Somebody who awaits a future."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Completed]) -> None:
        self.future = future

    def settle(self, outcome: Outcome) -> bool:
        if self.future.done():
            return False
        if isinstance(outcome, ServingError):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)
        return True


@final
class EngineBridge:
    """Takes submissions from one event loop to the engine, and outcomes back to who waits for them there.

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
        self.send(submission, _Awaiting(future))
        try:
            return await future
        except asyncio.CancelledError:
            self.withdraw(submission)
            raise

    def send(self, submission: Submission, waiter: Waiter) -> None:
        """Submits; `waiter` is told the outcome, unless it withdraws before."""
        submission.tag = waiter
        if not self._buffer:
            self._loop.call_soon(self._flush)
        self._buffer.append(submission)
        self._buffered[submission.model] = self._buffered.get(submission.model, 0) + 1

    def withdraw(self, submission: Submission) -> None:
        """Nobody waits any more: a request that was not launched never is. The outcome may still come."""
        if submission in self._buffer:
            self._buffer.remove(submission)
            self._buffered[submission.model] -= 1
        elif self._engine is not None:
            self._engine.cancel(submission)

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

    def _flush(self) -> None:
        batch, self._buffer = self._buffer, []
        self._buffered.clear()
        if batch and self._engine is not None:
            self._engine.submit(batch)

    def _resolve(self, outcomes: Sequence[tuple[Submission, Outcome]]) -> None:
        ended: float | None = None
        for submission, outcome in outcomes:
            waiter: Waiter = submission.tag
            if waiter.settle(outcome) and isinstance(outcome, Completed):
                ended = outcome.done
        if ended is not None and self._engine is not None:
            self._engine.delivered(self._clock.monotonic() - ended)
