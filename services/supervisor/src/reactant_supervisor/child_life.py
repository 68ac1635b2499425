"""Keeps one child running until it is stopped or given up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import final

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.logs import get_logger
from reactant_policy.restarts import GiveUp, RestartPolicy, after_exit
from reactant_supervisor.budget import STOP_BUDGET_SECONDS
from reactant_supervisor.children import Child, start_child
from reactant_supervisor.output import LineOutput
from reactant_supervisor.process_spec import ProcessSpec

_EXIT_NOT_STARTED = 127

_log = get_logger(__name__)

Watch = Callable[[Child], Awaitable[None]]
"""Accompanies a child from its start to its end; cancelled when the child ends."""


@final
@dataclass(frozen=True, slots=True)
class Stopped:
    """The stop that was asked for has happened; `clean` when the child ended by itself, without error."""

    clean: bool


@final
@dataclass(frozen=True, slots=True)
class LifeState:
    """Where a child stands.

    Attributes:
        word: running, waiting (for its restart), stopping, stopped or failed.
        pid: None when it does not run.
        restarts: since the node started, those that were asked for included.
        failures: in a row.
        since: when this state began, by the clock.
        last_exit: its last end; empty before.
    """

    word: str
    pid: int | None
    restarts: int
    failures: int
    since: float
    last_exit: str


@final
class ChildLife:
    """A child, restarted as the policy says. Its failures are its own: no other child is touched."""

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        output: LineOutput,
        policy: RestartPolicy,
        watch: Watch,
        clock: Clock = SYSTEM_CLOCK,
        restart_seconds: float = STOP_BUDGET_SECONDS,
    ) -> None:
        self.spec = spec
        self._output = output
        self._policy = policy
        self._watch = watch
        self._clock = clock
        self._restart_seconds = restart_seconds
        self._child: Child | None = None
        self._no_more = asyncio.Event()
        self._now = asyncio.Event()
        self._terminated = self._restart_asked = self._killed = False
        self._restarts = self._failures = 0
        self._word, self._since, self._last_exit = "waiting", clock.monotonic(), ""

    @property
    def name(self) -> str:
        """What logs and SupervisorService call it."""
        return self.spec.name

    @property
    def state(self) -> LifeState:
        """Where it stands now."""
        pid = self._child.pid if self._child is not None else None
        return LifeState(self._word, pid, self._restarts, self._failures, self._since, self._last_exit)

    async def run(self) -> Stopped | GiveUp:
        """Starts the child and keeps it running; returns when it has been stopped or is given up."""
        while not self._no_more.is_set():
            started = self._clock.monotonic()
            code = await self._one_life()
            self._last_exit = describe_exit(code)
            if self._terminated or self._no_more.is_set():
                return self._stopped(code)
            if self._restart_asked:
                self._restart_asked = False
                self._restarts += 1
                continue
            lived = self._clock.monotonic() - started
            decision = after_exit(
                self._policy,
                failures=self._failures,
                lived_seconds=lived,
                exit_code=code,
                first_start=self._restarts == 0,
            )
            self._failures = decision.failures
            if isinstance(decision, GiveUp):
                _log.error(f"{self.name} {self._last_exit}: {decision.reason}")
                self._enter("failed")
                return decision
            remark = f"; {decision.remark}" if decision.remark else ""
            _log.warning(
                f"{self.name} {self._last_exit} after {lived:.1f} s, restart {self._failures} of "
                f"{self._policy.max_restarts} in {decision.delay_seconds:g} s{remark}"
            )
            self._enter("waiting")
            await self._pause(decision.delay_seconds)
            self._restarts += 1
        self._enter("stopped")
        return Stopped(clean=True)

    def no_more_restarts(self) -> None:
        """From here on an end is final."""
        self._no_more.set()
        self._now.set()

    def terminate(self) -> None:
        """Asks the child to stop, for good; one with a pipe that can hold it waits for `release`."""
        self.no_more_restarts()
        self._terminated = True
        if self._child is not None:
            self._enter("stopping")
            self._child.terminate(held=True)

    def restart(self) -> None:
        """Ends the child as a stop does and starts it again at once, also out of a wait."""
        if self._no_more.is_set():
            return
        self._now.set()
        child = self._child
        if child is None or self._restart_asked:
            return
        self._restart_asked = True
        _log.info(f"restarting {self.name}, as asked")
        self._enter("stopping")
        # The others go on: there is nothing this one would have to outlive.
        child.terminate(held=False)
        asyncio.get_running_loop().call_later(self._restart_seconds, self._kill_if_still, child)

    def hang_up(self) -> bool:
        """Has the child read its files anew; False when it cannot be asked now."""
        return self._child is not None and self._child.hang_up()

    def release(self) -> None:
        """Lets a child that is held exit."""
        if self._child is not None:
            self._child.release()

    def kill(self) -> None:
        """Ends the child at once, for good."""
        self.no_more_restarts()
        if self._child is not None:
            self._killed = True
            self._child.kill()

    def _kill_if_still(self, child: Child) -> None:
        if self._child is child:
            _log.error(f"{self.name} did not stop within {self._restart_seconds:g} s, killing it")
            child.kill()

    async def _pause(self, seconds: float) -> None:
        self._now.clear()
        if not self._no_more.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._now.wait()
            except TimeoutError:
                pass

    async def _one_life(self) -> int:
        """One start to one end; the exit code."""
        try:
            child = await start_child(self.spec, self._output)
        except OSError as error:
            _log.error(f"{self.name} could not be started: {error}")
            return _EXIT_NOT_STARTED
        self._child = child
        self._enter("running")
        _log.info(f"{self.name} started", pid=child.pid)
        exited = asyncio.create_task(child.wait())
        watching = asyncio.create_task(self._watched(child))
        if self._terminated:
            child.terminate(held=True)
        try:
            return await asyncio.shield(exited)
        except BaseException:
            # Cancelled, perhaps with everything else on the loop: nothing it started stays.
            await child.abandon()
            raise
        finally:
            watching.cancel()
            await asyncio.wait([watching, exited])
            self._child = None

    async def _watched(self, child: Child) -> None:
        try:
            await self._watch(child)
        except Exception:
            # Watching only informs people; the child is served by its own process whatever happens here.
            _log.exception(f"{self.name} can no longer be watched")

    def _stopped(self, code: int) -> Stopped:
        # -SIGTERM: asked to stop while it was still starting, before it could listen for the signal.
        clean = self._terminated and not self._killed and code in (0, -signal.SIGTERM)
        if clean:
            _log.info(f"{self.name} stopped")
        elif not self._killed:
            _log.error(f"{self.name} {self._last_exit} while the node stops")
        self._enter("stopped")
        return Stopped(clean)

    def _enter(self, word: str) -> None:
        self._word, self._since = word, self._clock.monotonic()


def describe_exit(code: int) -> str:
    """`exited with code 3`, `was killed by SIGSEGV`."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
