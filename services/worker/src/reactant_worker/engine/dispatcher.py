"""The engine: one thread chooses and puts together, another launches, waits and answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import final

from reactant_core.clock import Clock
from reactant_core.logs import get_logger
from reactant_policy.scheduling.scheduler import ModelTerms, Scheduler
from reactant_worker.engine.completion import Completion
from reactant_worker.engine.flight import Flight
from reactant_worker.engine.port import Delivery, EngineStatistics, Runnable, Submission
from reactant_worker.engine.state import EngineState, Outcomes

_log = get_logger(__name__)

PIPELINE_DEPTH = 2
"""Dispatches in flight: one computes while the next is put together."""


@final
class Dispatcher:
    """Implements `Engine` for one device, on which one program computes at a time.

    A flight is launched once those before it have ended, or, where the device queues it, while they run.
    """

    def __init__(
        self, scheduler: Scheduler, clock: Clock, deliver: Delivery, *, depth: int = PIPELINE_DEPTH
    ) -> None:
        self._deliver_to = deliver
        self._clock = clock
        self._state = EngineState(scheduler, clock, depth)
        self._completion = Completion(self._state, clock, self._deliver)
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    @property
    def alive(self) -> bool:
        """Both threads run."""
        return self._thread.is_alive() and self._completion.thread.is_alive()

    def start(self) -> None:
        """Starts the threads."""
        self._completion.thread.start()
        self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Ends the threads after what the device has; what waits gets UNAVAILABLE.

        Blocks for at most `timeout_seconds`; returns whether both have ended.
        """
        self._deliver(self._state.stop())
        give_up = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        threads = (self._thread, self._completion.thread)
        for thread in threads:
            if thread.is_alive():
                thread.join(None if give_up is None else max(0.0, give_up - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def attach(self, model: str, runnable: Runnable, terms: ModelTerms) -> None:
        """See `Engine.attach`."""
        self._state.attach(model, runnable, terms)

    def detach(self, model: str) -> None:
        """See `Engine.detach`."""
        self._deliver(self._state.detach(model))

    def set_weight(self, model: str, weight: float) -> None:
        """See `Engine.set_weight`."""
        self._state.set_weight(model, weight)

    def submit(self, submissions: Sequence[Submission]) -> None:
        """See `Engine.submit`."""
        self._deliver(self._state.submit(submissions))

    def cancel(self, submission: Submission) -> bool:
        """See `Engine.cancel`."""
        return self._state.cancel(submission)

    def depth(self, model: str) -> int:
        """See `Engine.depth`."""
        return self._state.depth(model)

    def busy(self) -> bool:
        """See `Engine.busy`."""
        return self._state.busy()

    def stalled_seconds(self) -> float:
        """See `Engine.stalled_seconds`."""
        return self._state.stalled_seconds()

    def statistics(self, model: str) -> EngineStatistics:
        """See `Engine.statistics`."""
        return self._state.statistics(model)

    def observe(self, model: str, variant: int | None, size: int, seconds: float) -> None:
        """See `Engine.observe`."""
        self._state.seed(model, variant, size, seconds)

    def delivered(self, seconds: float) -> None:
        """See `Engine.delivered`."""
        self._state.delivered(seconds)

    def _run(self) -> None:
        try:
            while self._step():
                pass
        finally:
            self._completion.close()

    def _step(self) -> bool:
        try:
            work = self._state.take()
        except BaseException as error:
            # Nothing of ours should get here. Whoever waits is answered, and the next request finds a
            # thread that lives.
            _log.exception("the dispatcher failed")
            self._deliver(self._state.abandon(f"the dispatcher failed: {error}"))
            return True
        if work is None:
            return False
        flight, refused = work
        self._deliver(refused)
        if flight is not None:
            self._stage(flight)
        return True

    def _stage(self, flight: Flight) -> None:
        dispatch, submissions = flight.dispatch, [s for _, s in flight.submissions]
        try:
            batch = flight.attached.runnable.stage(
                dispatch.size,
                dispatch.variant,
                [s.inputs for s in submissions],
                [s.rows for s in submissions],
            )
            first = self._state.staged(flight, self._clock.monotonic())
        except BaseException as error:
            self._completion.fail(flight, error)
            return
        if not flight.overlaps:
            self._completion.fly(flight, batch)
            return
        if batch.queues or (first and not batch.runs_in_launch):
            self._completion.launch(flight, batch)
        self._completion.hand_over(flight, batch)

    def _deliver(self, outcomes: Outcomes) -> None:
        if not outcomes:
            return
        try:
            self._deliver_to(outcomes)
        except Exception:
            # A receiver's fault must not end the thread that delivers.
            _log.exception("outcomes could not be delivered", requests=len(outcomes))
