"""The thread that decides what the device runs next, runs it, and delivers the outcomes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from reactant_core.clock import Clock
from reactant_core.errors import DeadlineExceeded, InternalError, ModelUnavailable
from reactant_core.logs import get_logger
from reactant_policy.scheduling.queues import Waiting
from reactant_policy.scheduling.scheduler import Dispatch, ModelTerms, Scheduler
from reactant_worker.engine.port import (
    Completed,
    Delivery,
    EngineStatistics,
    Outcome,
    Runnable,
    Submission,
)

_log = get_logger(__name__)


@final
@dataclass(slots=True)
class _Attached:
    runnable: Runnable
    dispatches: int = 0
    requests: int = 0
    rows: int = 0
    compute_seconds: float = 0.0


@final
class Dispatcher:
    """Implements `Engine` with one thread; the scheduling state is only touched under one lock."""

    def __init__(self, scheduler: Scheduler, clock: Clock, deliver: Delivery) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._deliver = deliver
        self._work = threading.Condition(threading.Lock())
        self._attached: dict[str, _Attached] = {}
        self._waiting: dict[int, Submission] = {}
        self._tickets = itertools.count()
        self._idle = False
        self._busy = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    @property
    def alive(self) -> bool:
        """The thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Ends the thread after the execution it is in; what waits gets UNAVAILABLE.

        Blocks for at most `timeout_seconds`; returns whether the thread has ended.
        """
        with self._work:
            self._stopping = True
            orphans = list(self._waiting.values())
            for orphan in orphans:
                self._scheduler.cancel(orphan.model, orphan.ticket)
            self._waiting.clear()
            self._work.notify()
        self._refuse(orphans, "the server is shutting down")
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def attach(self, model: str, runnable: Runnable, terms: ModelTerms) -> None:
        """See `Engine.attach`."""
        with self._work:
            self._attached[model] = _Attached(runnable)
            self._scheduler.add_model(model, terms)

    def detach(self, model: str) -> None:
        """See `Engine.detach`."""
        with self._work:
            self._attached.pop(model, None)
            left = [self._waiting.pop(w.ticket) for w in self._scheduler.remove_model(model)]
        self._refuse(left, "the model was unloaded")

    def submit(self, submissions: Sequence[Submission]) -> None:
        """See `Engine.submit`."""
        refused: list[Submission] = []
        with self._work:
            for submission in submissions:
                if self._stopping or submission.model not in self._attached:
                    refused.append(submission)
                    continue
                submission.ticket = ticket = next(self._tickets)
                self._waiting[ticket] = submission
                self._scheduler.enqueue(
                    submission.model,
                    Waiting(
                        ticket,
                        submission.rows,
                        submission.variant,
                        submission.arrived,
                        submission.deadline,
                    ),
                )
            if self._idle:
                self._work.notify()
        self._refuse(refused, "the model was unloaded")

    def cancel(self, submission: Submission) -> bool:
        """See `Engine.cancel`."""
        with self._work:
            if self._waiting.pop(submission.ticket, None) is None:
                return False
            self._scheduler.cancel(submission.model, submission.ticket)
            return True

    def depth(self, model: str) -> int:
        """See `Engine.depth`."""
        # One length, read for every request: not worth waiting for the thread that decides.
        return self._scheduler.depth(model)

    def busy(self) -> bool:
        """See `Engine.busy`."""
        return self._busy

    def statistics(self, model: str) -> EngineStatistics:
        """See `Engine.statistics`."""
        with self._work:
            counted = self._attached[model]
            return EngineStatistics(
                self._scheduler.depth(model),
                counted.dispatches,
                counted.requests,
                counted.rows,
                counted.compute_seconds,
            )

    def observe(self, model: str, variant: int | None, size: int, seconds: float) -> None:
        """See `Engine.observe`."""
        with self._work:
            self._scheduler.observe(model, variant, size, seconds)

    def _refuse(self, submissions: Sequence[Submission], reason: str) -> None:
        if submissions:
            self._deliver([(s, ModelUnavailable(reason, not_started=True)) for s in submissions])

    def _run(self) -> None:
        while (work := self._next()) is not None:
            dispatch, submissions, attached = work
            self._busy = True
            try:
                outcomes = self._dispatch(dispatch, submissions, attached)
            except Exception as error:
                # Nothing of ours should get here; if it does, these requests fail and all others go on.
                _log.exception("dispatch failed", model=dispatch.model)
                outcomes = [(s, InternalError(f"dispatch failed: {error}")) for s in submissions]
            self._busy = False
            self._deliver(outcomes)

    def _dispatch(
        self, dispatch: Dispatch, submissions: list[Submission], attached: _Attached
    ) -> list[tuple[Submission, Outcome]]:
        now = self._clock.monotonic()
        alive = [s for s in submissions if s.deadline is None or s.deadline > now]
        outcomes: list[tuple[Submission, Outcome]] = [
            (s, DeadlineExceeded("the deadline passed in the queue"))
            for s in submissions
            if s.deadline is not None and s.deadline <= now
        ]
        if alive:
            outcomes += self._execute(dispatch, alive, attached, now)
        return outcomes

    def _next(self) -> tuple[Dispatch, list[Submission], _Attached] | None:
        with self._work:
            while not self._stopping:
                dispatch = self._scheduler.next_dispatch()
                if dispatch is not None:
                    submissions = [self._waiting.pop(w.ticket) for w in dispatch.requests]
                    return dispatch, submissions, self._attached[dispatch.model]
                self._idle = True
                self._work.wait()
                self._idle = False
        return None

    def _execute(
        self, dispatch: Dispatch, alive: list[Submission], attached: _Attached, now: float
    ) -> list[tuple[Submission, Outcome]]:
        rows = [s.rows for s in alive]
        try:
            outputs, times = attached.runnable.execute(
                dispatch.size, dispatch.variant, [s.inputs for s in alive], rows
            )
        except BaseException as error:
            # One failed execution fails its own requests; the device and the thread live on.
            _log.exception("execution failed", model=dispatch.model, size=dispatch.size, rows=sum(rows))
            return [(s, InternalError(f"execution failed: {error}")) for s in alive]
        with self._work:
            attached.dispatches += 1
            attached.requests += len(alive)
            attached.rows += sum(rows)
            attached.compute_seconds += times.compute
            self._scheduler.observe(dispatch.model, dispatch.variant, dispatch.size, times.compute)
        return [
            (
                s,
                Completed(out, now - s.arrived, times.input, times.compute, times.output),
            )
            for s, out in zip(alive, outputs, strict=True)
        ]
