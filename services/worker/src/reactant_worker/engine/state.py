"""What the engine's threads and the RPC side share, under one lock."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence
from typing import final

from reactant_core.clock import Clock
from reactant_core.errors import DeadlineExceeded, InternalError, ModelUnavailable, ServingError
from reactant_core.logs import get_logger
from reactant_policy.pipeline import InFlight, Turn, overlaps
from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.scheduler import Dispatch, ModelTerms, Scheduler
from reactant_worker.engine.flight import Attached, Flight
from reactant_worker.engine.port import EngineStatistics, Outcome, Runnable, Submission

_log = get_logger(__name__)

Outcomes = Sequence[tuple[Submission, Outcome]]


@final
class EngineState:
    """Queues, attached models and what is in flight; every method is thread-safe.

    A request waits, and can be taken out, in its queue and in a flight that was not launched. A flight is
    in flight from `take` to `end` or `withdraw`. Outcomes are returned, for the caller to deliver.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock, depth: int) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._attached: dict[str, Attached] = {}
        self._queued: dict[int, Submission] = {}
        self._staged: dict[int, Submission] = {}
        self._in_flight = InFlight(depth)
        self._tickets = itertools.count()
        self._delivered: deque[float] = deque(maxlen=16)
        # Whether the thread in `take` sleeps until one of these: waking it for nothing costs both sides.
        self._awaits_submission = False
        self._awaits_end = False
        self._stopping = False

    def attach(self, model: str, runnable: Runnable, terms: ModelTerms) -> None:
        """See `Engine.attach`."""
        with self._lock:
            self._attached[model] = Attached(runnable)
            self._scheduler.add_model(model, terms)

    def detach(self, model: str) -> Outcomes:
        """See `Engine.detach`."""
        with self._lock:
            self._attached.pop(model, None)
            left = [self._queued.pop(waiting.ticket) for waiting in self._scheduler.remove_model(model)]
        return [(submission, _unloaded()) for submission in left]

    def set_weight(self, model: str, weight: float) -> None:
        """See `Engine.set_weight`."""
        with self._lock:
            self._scheduler.set_weight(model, weight)

    def submit(self, submissions: Sequence[Submission]) -> Outcomes:
        """See `Engine.submit`."""
        refused: list[tuple[Submission, Outcome]] = []
        with self._lock:
            for submission in submissions:
                refusal = self._enqueue(submission)
                if refusal is not None:
                    refused.append((submission, refusal))
            if self._awaits_submission:
                self._changed.notify()
        return refused

    def cancel(self, submission: Submission) -> bool:
        """See `Engine.cancel`."""
        with self._lock:
            if self._queued.pop(submission.ticket, None) is not None:
                self._scheduler.cancel(submission.model, submission.ticket)
                return True
            if self._staged.pop(submission.ticket, None) is None:
                return False
            attached = self._attached.get(submission.model)
            if attached is not None:
                attached.staged -= 1
            return True

    def depth(self, model: str) -> int:
        """See `Engine.depth`."""
        # Two numbers, read for every request: not worth waiting for the thread that decides.
        attached = self._attached.get(model)
        return 0 if attached is None else self._scheduler.depth(model) + attached.staged

    def busy(self) -> bool:
        """See `Engine.busy`."""
        return len(self._in_flight) > 0

    def stalled_seconds(self) -> float:
        """See `Engine.stalled_seconds`."""
        with self._lock:
            return self._in_flight.overdue(self._clock.monotonic())

    def statistics(self, model: str) -> EngineStatistics:
        """See `Engine.statistics`."""
        with self._lock:
            counted = self._attached[model]
            return EngineStatistics(
                self.depth(model),
                counted.dispatches,
                counted.requests,
                counted.rows,
                counted.compute_seconds,
            )

    def seed(self, model: str, variant: int | None, size: int, seconds: float) -> None:
        """See `Engine.observe`."""
        with self._lock:
            self._scheduler.seed(model, variant, size, seconds)

    def delivered(self, seconds: float) -> None:
        """See `Engine.delivered`."""
        # Kept for the next decision: the event loop need not wait for the lock.
        self._delivered.append(seconds)

    def take(self) -> tuple[Flight | None, Outcomes] | None:
        """Blocks until there is something to launch or to refuse; None once `stop` was called.

        Raises whatever a decision raises; `abandon` is due then.
        """
        with self._lock:
            while not self._stopping:
                now = self._clock.monotonic()
                wake_at = self._in_flight.next_at(now) if self._queued else None
                decided = wake_at is not None and wake_at <= now
                if decided:
                    while self._delivered:
                        self._scheduler.delivered(self._delivered.popleft())
                    decision = self._scheduler.next(now, self._in_flight.left(now))
                    late = [
                        (self._queued.pop(waiting.ticket), _late(waiting, now))
                        for _, waiting in decision.dropped
                    ]
                    if decision.dispatch is not None:
                        return self._fly(decision.dispatch, now), late
                    if late:
                        return None, late
                    wake_at = decision.wait_until
                self._awaits_submission = decided or not self._queued
                self._awaits_end = bool(self._queued)
                self._changed.wait(None if wake_at is None else wake_at - now)
                self._awaits_submission = self._awaits_end = False
        return None

    def staged(self, flight: Flight, now: float) -> bool:
        """The inputs of a flight were put together; returns whether all before it have ended."""
        with self._lock:
            flight.place.ready = now
            return len(self._in_flight) == 1

    def board(self, flight: Flight, now: float) -> Outcomes:
        """Settles who is on a flight that is about to be launched; who left or is late is not."""
        with self._lock:
            here = self._unstage(flight)
            flight.boarded = True
            flight.submissions = [(i, s) for i, s in here if s.deadline is None or s.deadline > now]
            if not flight.submissions:
                self._scheduler.withdrawn(flight.dispatch, now)
                self._in_flight.withdraw(flight.place)
                self._wake_after_end()
        if len(flight.submissions) == len(here):
            return ()
        return [(s, _late(s, now)) for _, s in here if s.deadline is not None and s.deadline <= now]

    def withdraw(self, flight: Flight) -> None:
        """A flight failed before it came to run; `flight.submissions` are left who are to hear of it."""
        with self._lock:
            if not flight.boarded:
                flight.submissions = self._unstage(flight)
            self._in_flight.withdraw(flight.place)
            self._wake_after_end()

    def end(self, flight: Flight, now: float, *, succeeded: bool) -> Turn:
        """The oldest flight has ended; what it took is learned and counted if it succeeded."""
        with self._lock:
            turn = self._in_flight.done(flight.place, now)
            self._wake_after_end()
            if succeeded:
                attached, dispatch = flight.attached, flight.dispatch
                attached.dispatches += 1
                attached.requests += len(flight.submissions)
                attached.rows += sum([s.rows for _, s in flight.submissions])
                attached.compute_seconds += turn.seconds
                self._scheduler.observe(dispatch.model, dispatch.variant, dispatch.size, turn.seconds, now)
        return turn

    def abandon(self, reason: str) -> Outcomes:
        """Takes out everything that waits, after a decision failed that would only fail again."""
        return [(submission, InternalError(reason)) for submission in self._clear()]

    def stop(self) -> Outcomes:
        """Takes nothing more in, and out everything that waits."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
        return [(submission, _shutting_down()) for submission in self._clear()]

    def _clear(self) -> list[Submission]:
        with self._lock:
            left = [*self._queued.values(), *self._staged.values()]
            self._queued.clear()
            self._staged.clear()
            for attached in self._attached.values():
                attached.staged = 0
            for submission in left:
                self._scheduler.cancel(submission.model, submission.ticket)
        return left

    def _enqueue(self, submission: Submission) -> ServingError | None:
        if self._stopping:
            return _shutting_down()
        if submission.model not in self._attached:
            return _unloaded()
        submission.ticket = next(self._tickets)
        waiting = Waiting(
            submission.ticket,
            submission.rows,
            submission.variant,
            submission.arrived,
            submission.deadline,
            submission.committed,
        )
        try:
            self._scheduler.enqueue(submission.model, waiting)
        except Exception as error:
            # The others that came with it are not to blame.
            _log.exception("a request could not be queued", model=submission.model, rows=submission.rows)
            return InternalError(f"the request could not be queued: {error}")
        self._queued[submission.ticket] = submission
        return None

    def _fly(self, dispatch: Dispatch, now: float) -> Flight:
        attached = self._attached[dispatch.model]
        submissions = [self._queued.pop(waiting.ticket) for waiting in dispatch.requests]
        self._staged.update({submission.ticket: submission for submission in submissions})
        attached.staged += len(submissions)
        cost = self._scheduler.cost.measured(dispatch.model, dispatch.variant, dispatch.size)
        worth = overlaps(cost, others_wait=bool(self._queued) or self.busy())
        place = self._in_flight.add(now, cost)
        return Flight(dispatch, attached, place, now, worth, list(enumerate(submissions)))

    def _drop(self, waiting: Waiting, now: float) -> tuple[Submission, Outcome]:
        return self._queued.pop(waiting.ticket), _late(waiting, now)

    def _unstage(self, flight: Flight) -> list[tuple[int, Submission]]:
        here = [(i, s) for i, s in flight.submissions if self._staged.pop(s.ticket, None) is not None]
        flight.attached.staged -= len(here)
        return here

    def _wake_after_end(self) -> None:
        if self._awaits_end:
            self._changed.notify()


def _shutting_down() -> ModelUnavailable:
    return ModelUnavailable("the server is shutting down", not_started=True)


def _unloaded() -> ModelUnavailable:
    return ModelUnavailable("the model was unloaded", not_started=True)


def _late(request: Waiting | Submission, now: float) -> DeadlineExceeded:
    if request.deadline is not None and request.deadline > now:
        return DeadlineExceeded("the deadline cannot be met any more")
    return DeadlineExceeded("the deadline passed in the queue")
