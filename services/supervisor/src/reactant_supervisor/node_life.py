"""All children of a node: run together, ended in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import final

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.lifecycle import Stop
from reactant_core.logs import get_logger
from reactant_policy.restarts import EX_CONFIG, GiveUp
from reactant_policy.shutdown import stop_schedule
from reactant_supervisor.budget import STOP_BUDGET_SECONDS
from reactant_supervisor.child_life import ChildLife, Stopped

EX_FAILURE = 1

_log = get_logger(__name__)

Ended = asyncio.Task[Stopped | GiveUp]


@final
class NodeLife:
    """The workers and, where there is one, the gateway of a machine."""

    def __init__(
        self,
        workers: Sequence[ChildLife],
        gateway: ChildLife | None,
        *,
        wait_drained: Callable[[], Awaitable[None]],
        clock: Clock = SYSTEM_CLOCK,
        budget_seconds: float = STOP_BUDGET_SECONDS,
    ) -> None:
        """Makes a node that has not been started.

        Args:
            workers: in any order.
            gateway: stopped before them and gone after them.
            wait_drained: ends when the gateway has answered all it accepted.
            clock: measures the stop.
            budget_seconds: from the request to stop to the end of all.
        """
        self._workers = tuple(workers)
        self._gateway = gateway
        self._wait_drained = wait_drained
        self._clock = clock
        self._budget = budget_seconds

    @property
    def children(self) -> tuple[ChildLife, ...]:
        """Everything that is kept running, workers first."""
        return (*self._workers, *([self._gateway] if self._gateway is not None else []))

    async def run(self, stop: Stop, *, stopping: Callable[[], None] = lambda: None) -> int:
        """Runs until a stop is asked for or a child is given up, then ends all; returns the exit code.

        Args:
            stop: the request.
            stopping: called once, when the end begins.
        """
        ended: dict[ChildLife, Ended] = {life: asyncio.create_task(life.run()) for life in self.children}
        asked = asyncio.create_task(stop.requested.wait())
        try:
            await asyncio.wait([asked, *ended.values()], return_when=asyncio.FIRST_COMPLETED)
            stopping()
            await self._end(ended)
        finally:
            asked.cancel()
            # Also when this task itself is cancelled, or one of them failed: nothing stays.
            for task in ended.values():
                # Once only: the second would interrupt what the first has it do.
                if not task.cancelling():
                    task.cancel()
            await asyncio.wait([asked, *ended.values()])
        return _exit_code([task.result() for task in ended.values()])

    async def _end(self, ended: dict[ChildLife, Ended]) -> None:
        """Gateway drained, workers ended, gateway let go, the rest killed; each by its time at the latest."""
        schedule = stop_schedule(self._budget, gateway=self._gateway is not None, workers=bool(self._workers))
        begun = self._clock.monotonic()

        def left(by: float) -> float:
            return max(0.0, begun + by - self._clock.monotonic())

        names = ", ".join(life.name for life, task in ended.items() if not task.done())
        if names:
            _log.info(f"stopping {names}, at most {self._budget:g} s")
        for life in self.children:
            life.no_more_restarts()
        gateway = self._gateway
        if gateway is not None and not ended[gateway].done():
            gateway.terminate()
            await self._drained(ended[gateway], left(schedule.drained_by))
        for life in self._workers:
            life.terminate()
        await _all([ended[life] for life in self._workers], left(schedule.workers_ended_by))
        if gateway is not None:
            gateway.release()
        await _all(list(ended.values()), left(schedule.killed_at))
        for life, task in ended.items():
            if not task.done():
                _log.error(f"{life.name} did not stop within {self._budget:g} s, killing it")
                life.kill()
        await _all(list(ended.values()), None)

    async def _drained(self, gateway: Ended, seconds: float) -> None:
        if not self._workers:
            return
        drained = asyncio.ensure_future(self._wait_drained())
        done, _ = await asyncio.wait([gateway, drained], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            _log.warning("the gateway has not drained in its share of the stop; its workers are stopped now")
        drained.cancel()
        await asyncio.wait([drained])


async def _all(tasks: Sequence[Ended], seconds: float | None) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)


def _exit_code(ends: Sequence[Stopped | GiveUp]) -> int:
    given_up = [end for end in ends if isinstance(end, GiveUp)]
    if any(end.configuration_refused for end in given_up):
        return EX_CONFIG
    clean = all(end.clean for end in ends if isinstance(end, Stopped))
    return 0 if clean and not given_up else EX_FAILURE
