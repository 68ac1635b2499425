"""Whether a worker may be sent requests, and what it says when it may not."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol, final

from reactant_core.logs import get_logger
from reactant_core.rpc import HealthServicer

_log = get_logger(__name__)

_LOOK_SECONDS = 1.0

Phase = Literal["starting", "ready", "draining"]


class Engine(Protocol):
    """What readiness asks of the engine."""

    @property
    def alive(self) -> bool:
        """Its threads run."""
        ...

    def stalled_seconds(self) -> float:
        """How long the present execution is overdue; 0.0 when none is."""
        ...


@final
class Vitals:
    """The worker's readiness, kept in the health service under the name "". On the event loop only."""

    def __init__(self, engine: Engine, health: HealthServicer) -> None:
        self._engine = engine
        self._health = health
        self._phase: Phase = "starting"
        self._said_stalled = False

    @property
    def ready(self) -> bool:
        """The start-up set is settled, the worker is not draining, and executions end."""
        return self._phase == "ready" and self._engine.alive and not self._engine.stalled_seconds()

    @property
    def state(self) -> str:
        """The phase, or `stalled`."""
        return "stalled" if self._phase == "ready" and self._engine.stalled_seconds() else self._phase

    def enter(self, phase: Phase) -> None:
        """The worker goes into `phase`."""
        self._phase = phase
        self._health.set("", serving=self.ready)

    async def watch(self) -> None:
        """Looks, until it is cancelled, at the execution under way: one that does not end tells nobody."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Brings the health service up to date, and the log when an execution is stuck or has ended."""
        self._health.set("", serving=self.ready)
        seconds = self._engine.stalled_seconds()
        if self._said_stalled == (seconds > 0):
            return
        self._said_stalled = not self._said_stalled
        if self._said_stalled:
            _log.error(
                "an execution does not end, not ready until it does", overdue_seconds=round(seconds, 1)
            )
        else:
            _log.info("the execution that was overdue has ended")
