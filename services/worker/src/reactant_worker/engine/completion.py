"""The second half of a dispatch: onto the device, off it, and the answers taken apart."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import final

from reactant_core.clock import Clock
from reactant_core.errors import InternalError
from reactant_core.logs import get_logger
from reactant_policy.pipeline import Turn
from reactant_worker.engine.flight import Flight
from reactant_worker.engine.port import Batch, Completed
from reactant_worker.engine.state import EngineState, Outcomes

_log = get_logger(__name__)


@final
class Completion:
    """Launches and ends flights in the order in which they were staged. Its methods raise nothing.

    The thread has the flights during which the next is prepared; `fly` is for the others.
    """

    def __init__(self, state: EngineState, clock: Clock, deliver: Callable[[Outcomes], None]) -> None:
        self._state = state
        self._clock = clock
        self._deliver = deliver
        self._flights: queue.SimpleQueue[tuple[Flight, Batch] | None] = queue.SimpleQueue()
        self._closed = False
        self.thread = threading.Thread(target=self._run, name="completion", daemon=True)

    def hand_over(self, flight: Flight, batch: Batch) -> None:
        """Leaves a staged flight to the thread."""
        self._flights.put((flight, batch))

    def close(self) -> None:
        """Lets the thread end after what it was given."""
        self._flights.put(None)

    def fly(self, flight: Flight, batch: Batch) -> None:
        """Launches a staged flight and blocks until its outcomes are delivered."""
        self.launch(flight, batch)
        turn = self._land(flight, batch)
        if turn is not None:
            self._answer(flight, batch, turn)

    def launch(self, flight: Flight, batch: Batch) -> None:
        """Hands a staged flight to the device, unless that was done or nobody wants it any more."""
        if flight.boarded:
            return
        try:
            self._deliver(self._state.board(flight, self._clock.monotonic()))
            if flight.submissions:
                batch.launch()
                flight.launched = True
            else:
                batch.discard()
        except BaseException as error:
            self.fail(flight, error)

    def fail(self, flight: Flight, error: BaseException) -> None:
        """Answers a flight that came to nothing before it ran."""
        self._state.withdraw(flight)
        self._answer_failure(flight, error)

    def _run(self) -> None:
        staged = self._next()
        while staged is not None:
            flight, batch = staged
            self.launch(flight, batch)
            turn = self._land(flight, batch)
            staged = None if self._flights.empty() else self._next()
            if staged is not None and not staged[1].runs_in_launch:
                # Before the answers: those who get them keep the interpreter busy, and the device waits.
                self.launch(*staged)
            if turn is not None:
                self._answer(flight, batch, turn)
            # Not kept alive while the thread waits for the next.
            del flight, batch
            if staged is None:
                staged = self._next()

    def _next(self) -> tuple[Flight, Batch] | None:
        if self._closed:
            return None
        staged = self._flights.get()
        self._closed = staged is None
        return staged

    def _land(self, flight: Flight, batch: Batch) -> Turn | None:
        """Blocks until a flight has ended; None when there is nothing more to answer."""
        if not flight.launched:
            return None
        try:
            try:
                batch.wait()
            except BaseException:
                self._state.end(flight, self._clock.monotonic(), succeeded=False)
                raise
            return self._state.end(flight, self._clock.monotonic(), succeeded=True)
        except BaseException as error:
            self._answer_failure(flight, error)
            return None

    def _answer(self, flight: Flight, batch: Batch, turn: Turn) -> None:
        try:
            outputs = batch.outputs()
            if len(outputs) != len(flight.dispatch.requests):
                raise ValueError(f"{len(outputs)} answers for {len(flight.dispatch.requests)} requests")
            taken, inputs = flight.taken, flight.place.ready - flight.taken
            sliced = self._clock.monotonic() - turn.end
            answers = [
                (
                    s,
                    Completed(
                        outputs[i], taken - s.arrived + turn.waited, inputs, turn.seconds, sliced, turn.end
                    ),
                )
                for i, s in flight.submissions
            ]
        except BaseException as error:
            self._answer_failure(flight, error)
            return
        self._deliver(answers)

    def _answer_failure(self, flight: Flight, error: BaseException) -> None:
        # One failed execution fails its own requests; the device and the threads live on.
        dispatch = flight.dispatch
        _log.error(
            "execution failed", model=dispatch.model, size=dispatch.size, rows=dispatch.rows, exc_info=error
        )
        self._deliver([(s, InternalError(f"execution failed: {error}")) for _, s in flight.submissions])
