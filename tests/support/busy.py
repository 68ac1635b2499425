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
def busy_device(target: Target, log: HookLog, steps: int) -> Iterator[Pending]:
    """One execution of `slow` is on the device inside the block; leaving it waits for the answer."""
    name = unique("busy")
    pending = target.client.start_infer(slow(steps, id=name))
    eventually_sync(lambda: log.has(name) and target.depth("slow") == 0, what="the device is busy")
    assert not pending.done()
    try:
        yield pending
    finally:
        pending.reply().ok()
        target.assert_quiet()


@contextmanager
def busy_hooks(target: Target, log: HookLog, threads: int, seconds: float) -> Iterator[list[Pending]]:
    """So many hooks of `slow_hook` sleep inside the block; leaving it waits for their answers."""
    names = [unique("busy-hook") for _ in range(threads)]
    pending = [target.client.start_infer(slow_hook(seconds, id=name)) for name in names]
    eventually_sync(lambda: all(log.has(f"begin {name}") for name in names), what="the hooks are busy")
    try:
        yield pending
    finally:
        for one in pending:
            one.reply().ok()
        target.assert_quiet()
