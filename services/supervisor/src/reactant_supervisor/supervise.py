"""Keeps one child running until the node stops or gives it up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import final

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.lifecycle import Stop
from reactant_core.logs import get_logger
from reactant_policy.restarts import GiveUp, RestartPolicy, after_exit
from reactant_supervisor.budget import STOP_BUDGET_SECONDS
from reactant_supervisor.children import Child, start_child
from reactant_supervisor.output import LineOutput
from reactant_supervisor.plan import ProcessSpec

_EXIT_NOT_STARTED = 127

_log = get_logger(__name__)

Watch = Callable[[Child], Awaitable[None]]
"""Accompanies a child from its start to its end; cancelled when the child ends."""


@final
@dataclass(frozen=True, slots=True)
class Stopped:
    """The stop that was asked for has happened; `clean` when the child ended by itself, without error."""

    clean: bool


async def keep_running(
    spec: ProcessSpec,
    *,
    output: LineOutput,
    stop: Stop,
    policy: RestartPolicy,
    watch: Watch,
    clock: Clock = SYSTEM_CLOCK,
    stop_budget_seconds: float = STOP_BUDGET_SECONDS,
) -> Stopped | GiveUp:
    """Starts `spec`, restarts it as `policy` says, and on `stop` ends it within the budget."""
    failures = 0
    stop_asked = asyncio.create_task(stop.requested.wait())
    try:
        while not stop.requested.is_set():
            started = clock.monotonic()
            code = await _one_life(spec, output, stop_asked, watch, stop_budget_seconds)
            if isinstance(code, Stopped):
                return code
            lived = clock.monotonic() - started
            decision = after_exit(policy, failures=failures, lived_seconds=lived, exit_code=code)
            if isinstance(decision, GiveUp):
                _log.error(f"{spec.name} {describe_exit(code)}: {decision.reason}")
                return decision
            failures = decision.failures
            _log.warning(
                f"{spec.name} {describe_exit(code)} after {lived:.1f} s, restart {failures} of "
                f"{policy.max_restarts} in {decision.delay_seconds:g} s"
            )
            await asyncio.wait([stop_asked], timeout=decision.delay_seconds)
        return Stopped(clean=True)
    finally:
        stop_asked.cancel()


async def _one_life(
    spec: ProcessSpec,
    output: LineOutput,
    stop_asked: asyncio.Task[bool],
    watch: Watch,
    stop_budget_seconds: float,
) -> int | Stopped:
    """One start to one end; the exit code when it ended unasked."""
    try:
        child = await start_child(spec, output)
    except OSError as error:
        _log.error(f"{spec.name} could not be started: {error}")
        return _EXIT_NOT_STARTED
    _log.info(f"{spec.name} started", pid=child.pid)
    exited = asyncio.create_task(child.wait())
    watching = asyncio.create_task(_watched(watch, child))
    try:
        await asyncio.wait([exited, stop_asked], return_when=asyncio.FIRST_COMPLETED)
        if not stop_asked.done():
            return exited.result()
        return await _end(child, exited, stop_budget_seconds)
    finally:
        watching.cancel()
        # Also when this task itself is cancelled: nothing it started stays.
        if not exited.done():
            child.kill()
        await asyncio.wait([watching, exited])


async def _watched(watch: Watch, child: Child) -> None:
    try:
        await watch(child)
    except Exception:
        # Watching only informs people; the child is served by its own process whatever happens here.
        _log.exception(f"{child.spec.name} can no longer be watched")


async def _end(child: Child, exited: asyncio.Task[int], budget_seconds: float) -> Stopped:
    name = child.spec.name
    if not exited.done():
        _log.info(f"stopping {name}, at most {budget_seconds:g} s")
        child.terminate()
    await asyncio.wait([exited], timeout=budget_seconds)
    if not exited.done():
        _log.error(f"{name} did not stop within {budget_seconds:g} s, killing it")
        child.kill()
        await exited
        return Stopped(clean=False)
    code = exited.result()
    # -SIGTERM: asked to stop while it was still starting, before it could listen for the signal.
    clean = code in (0, -signal.SIGTERM)
    if clean:
        _log.info(f"{name} stopped")
    else:
        _log.error(f"{name} {describe_exit(code)} while stopping")
    return Stopped(clean)


def describe_exit(code: int) -> str:
    """`exited with code 3`, `was killed by SIGSEGV`."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
