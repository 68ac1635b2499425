"""A node is told to stop while clients send (case L6)."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import grpc
import pytest
from tests.support.busy import still_running, unique
from tests.support.client import Client, replies
from tests.support.hooklog import HookLog
from tests.support.messages import echo, slow
from tests.support.node_distance import distant
from tests.support.node_load import Load, Outcome, summary
from tests.support.node_process import STOP_BUDGET_SECONDS, MakeNode, assert_gone

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow

SHM = Path("/dev/shm")


def ours() -> set[Path]:
    """Shared memory that some node made."""
    return set(SHM.glob("reactant-*"))


def test_l6_sigterm_while_clients_send_and_requests_run(
    start: MakeNode, hook_log: HookLog, load_seconds: float
) -> None:
    before = ours()
    node = start(workers=2)
    node.wait_complete()
    models = ["repeatable", "slow_hook"]
    with (
        Client(node.address) as client,
        distant(node.ports.grpc) as far_away,
        Load(node.address, models, rate=100) as load,
        # Their requests are on their way while they are told to go.
        Load(far_away, models, rate=100) as late,
    ):
        load.go_on(load_seconds)
        held = [unique("held") for _ in range(8)]
        accepted = [
            client.start_infer(echo(model="slow_hook", id=name, parameters={"seconds": 2.0})) for name in held
        ]
        names = [unique("slow") for _ in range(4)]
        accepted += [client.start_infer(slow(2_000, id=name)) for name in names]
        eventually_sync(
            lambda: all(hook_log.has(f"begin {name}") for name in held) and all(map(hook_log.has, names)),
            what="the hooks run",
        )

        assert still_running(accepted[: len(held)])
        begun = time.monotonic()
        code = node.stop()
        took = time.monotonic() - begun
        # Clients go on all the while, and meet nobody now.
        load.go_on(0.1)
    outcomes = [*load.outcomes, *late.outcomes]
    failures = [one for one in outcomes if not one.ok]
    print(f"stopped in {took:.2f} s; {len(outcomes)} requests, {summary(failures)}")

    assert code == 0, node.server.tail()
    assert took < STOP_BUDGET_SECONDS
    for reply in replies(accepted):
        reply.ok()
    strange = [one for one in failures if not (one.ended > begun and refused(one))]
    assert not strange, summary(strange)
    runs = Counter(hook_log.lines())
    assert all(runs[f"begin {one.id}"] == (1 if one.ok else 0) for one in outcomes)
    assert not node.errors()
    order = [(event["process"].rstrip("012"), event["event"]) for event in node.events()]
    assert order.index(("gateway", "drained")) < order.index(("worker", "draining"))
    assert node.said("drain timed out") == node.said("has not drained in its share") == 0
    assert_gone(node)
    assert ours() <= before


def refused(outcome: Outcome) -> bool:
    """By an answer that says so, or because nobody took the connection."""
    if outcome.code is not grpc.StatusCode.UNAVAILABLE:
        return False
    return outcome.not_started or "failed to connect to all addresses" in outcome.details


def test_a_lone_worker_is_stopped_by_a_request_as_by_a_signal(start: MakeNode) -> None:
    """SupervisorService.Drain, and Status meanwhile. One worker has the public ports, and no gateway."""
    node = start(workers=1)
    node.wait_ready()
    assert node.pids().keys() == {"worker0"}
    with Client(node.address) as client:
        accepted = client.start_infer(echo(model="slow_hook", parameters={"seconds": 1.0}))
        eventually_sync(lambda: node.page().value("worker_inflight_requests") == 1)
        node.drain()
        status = node.status()
        assert (status.stopping, status.ready) == (True, False)
        accepted.reply().ok()
    assert node.server.wait(STOP_BUDGET_SECONDS) == 0
    assert not node.errors()
    assert_gone(node)
