"""Hooks that do what no hook should: their own requests suffer for it, and nobody else's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from tests.engine.traffic import Closed
from tests.support.client import Pending
from tests.support.messages import Parameter, echo
from tests.support.process import ServerProcess
from tests.support.target import Target

from reactant_core.testing import eventually_sync

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HOOK_THREADS = 8
ASLEEP_SECONDS = 2.0
UNDISTURBED_SECONDS = 1.0
"""The slowest answer of a neighbour; one that waits for a hook takes `ASLEEP_SECONDS`."""
EACH = 3

OK, INTERNAL = grpc.StatusCode.OK, grpc.StatusCode.INTERNAL

FAULTS: Mapping[str, grpc.StatusCode] = {
    "none": OK,
    "raises": INTERNAL,
    "forks": OK,
    "forks and returns": OK,
    "forks and raises": OK,
    "runs a program": OK,
    "exits": INTERNAL,
    "interrupts": INTERNAL,
    "recurses": INTERNAL,
    "imports": OK,
    "leaves a thread": OK,
    "keeps and changes": OK,
    "wrong name": INTERNAL,
    "too wide": INTERNAL,
    "too many rows": grpc.StatusCode.INVALID_ARGUMENT,
    "other rows": OK,
    "wrong type": INTERNAL,
    "no array": INTERNAL,
    "none at all": INTERNAL,
}
"""What a hook does, and what its own request gets."""


META_FAULTS: Mapping[str, grpc.StatusCode] = {
    "none": OK,
    "undeclared": INTERNAL,
    "wrong_axis": INTERNAL,
    "returns_none": INTERNAL,
    "raise": INTERNAL,
    "exit": INTERNAL,
    "cancelled": INTERNAL,
    "forks": OK,
}
"""What a meta does, and what its own request gets."""


@pytest.fixture
def misbehaving(fair: Target) -> Iterator[Target]:
    """The worker with `misbehaves` and `meta_faults`, left without them and without their processes."""
    fair.client.load("misbehaves").ok()
    fair.client.load("meta_faults").ok()
    yield fair
    for child in copies(fair):
        os.kill(child, signal.SIGKILL)
    fair.client.unload("misbehaves").ok()
    fair.client.unload("meta_faults").ok()


def copies(target: Target) -> list[int]:
    """Processes that a thread of the worker has forked, that run no program of their own, and that run."""
    assert isinstance(target.process, ServerProcess)
    worker = Path(f"/proc/{target.process.pid}")
    tasks, command = worker.glob("task/*/children"), (worker / "cmdline").read_bytes()
    return [int(pid) for task in tasks for pid in task.read_text().split() if _command(pid) == command]


def _command(pid: str) -> bytes:
    """The command of a process; of one that has ended, none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def misbehave(target: Target, fault: str, model: str = "misbehaves", **parameters: Parameter) -> Pending:
    return target.client.start_infer(echo(model=model, parameters={"fault": fault, **parameters}))


def test_neighbours_notice_nothing(misbehaving: Target) -> None:
    """Every hook thread asleep, then every fault several times, at the same time."""
    address = misbehaving.process.address
    with ExitStack() as stack:
        neighbours = [
            stack.enter_context(Closed(address, lambda n: echo(start=float(n % 1000)), 2)),
            stack.enter_context(Closed(address, lambda n: echo(model="light", start=float(n % 1000)), 2)),
        ]
        asleep = [misbehave(misbehaving, "sleeps", seconds=ASLEEP_SECONDS) for _ in range(HOOK_THREADS)]
        pending = [
            (model, fault, misbehave(misbehaving, fault, model))
            for model, faults in (("misbehaves", FAULTS), ("meta_faults", META_FAULTS))
            for fault in faults
            for _ in range(EACH)
        ]
        outcomes = [(model, fault, one.reply()) for model, fault, one in pending]
        for one in asleep:
            one.reply().ok()

    for model, faults in (("misbehaves", FAULTS), ("meta_faults", META_FAULTS)):
        seen = {(fault, reply.code): reply.details for whose, fault, reply in outcomes if whose == model}
        assert set(seen) == set(faults.items()), seen
        assert all(f"'{model}'" in details for (_, code), details in seen.items() if code is not OK)
    eventually_sync(lambda: not copies(misbehaving), 5, what="no copy of the worker is left")
    for traffic in neighbours:
        traffic.assert_all_right()
        assert max(one.seconds for one in traffic.outcomes) < UNDISTURBED_SECONDS


@pytest.mark.parametrize("fault", ["forks and returns", "forks and raises"])
def test_the_child_of_a_hook_does_not_live_on_as_a_server(misbehaving: Target, fault: str) -> None:
    """It would hold the worker's ports beyond the worker's end."""
    misbehave(misbehaving, fault).reply().ok()

    eventually_sync(lambda: not copies(misbehaving), 5, what="the child has ended")
