"""Keeping the device or the hooks of a server busy for as long as a test needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.client import Client, Pending
from tests.support.hooklog import HookLog
from tests.support.messages import slow, slow_hook
from tests.support.target import Target

from reactant_core.testing import eventually_sync

_serial = itertools.count()


def unique(prefix: str) -> str:
    """An id that no other request of this session has."""
    return f"{prefix}-{next(_serial)}"


def steps_for(seconds: float, client: Client) -> int:
    """How many steps of `slow` take at least `seconds` on this server, by running it."""
    steps = 2000
    while (took := client.infer(slow(steps)).seconds) < 0.1:
        steps *= 4
    # Only that it is long matters: a machine that was busy while this was measured is faster later.
    return int(1.3 * seconds / took * steps)


@contextmanager
def busy_device(target: Target, log: HookLog, steps: int) -> Iterator[list[Pending]]:
    """One execution of `slow` is on each device inside the block; leaving it waits for the answers."""
    names = [unique("busy") for _ in range(target.replicas)]
    pending = [target.client.start_infer(slow(steps, id=name)) for name in names]
    eventually_sync(
        lambda: all(map(log.has, names)) and target.depth("slow") == 0, what="the devices are busy"
    )
    assert still_running(pending)
    try:
        yield pending
    finally:
        for one in pending:
            one.reply().ok()
        target.assert_quiet()


def still_running(pending: list[Pending]) -> bool:
    """None of them has its outcome."""
    return not any(one.done() for one in pending)


@contextmanager
def busy_hooks(target: Target, log: HookLog, threads: int, seconds: float) -> Iterator[list[Pending]]:
    """So many hooks of `slow_hook` sleep on each worker inside the block; leaving it waits for them."""
    names = [unique("busy-hook") for _ in range(threads * target.replicas)]
    pending = [target.client.start_infer(slow_hook(seconds, id=name)) for name in names]
    eventually_sync(lambda: all(log.has(f"begin {name}") for name in names), what="the hooks are busy")
    try:
        yield pending
    finally:
        for one in pending:
            one.reply().ok()
        target.assert_quiet()
