"""The gateway of a serving node is killed: its listening sockets stay."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from tests.support.client import Client
from tests.support.hooklog import HookLog
from tests.support.messages import echo
from tests.support.node_load import Load, summary
from tests.support.node_process import NodeProcess
from tests.support.process import HOST

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow


@contextmanager
def connecting(*ports: int) -> Iterator[list[str]]:
    """Connects to each port every few milliseconds inside the block; what each attempt had against it."""
    outcomes: list[str] = []
    over = threading.Event()

    def connect() -> None:
        while not over.wait(0.01):
            for port in ports:
                try:
                    socket.create_connection((HOST, port), timeout=20).close()
                    outcomes.append("")
                except OSError as error:
                    outcomes.append(f"{port}: {error}")

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        yield outcomes
    finally:
        over.set()
        thread.join()


def test_the_gateway_is_killed_while_clients_send(
    node: NodeProcess, client: Client, hook_log: HookLog, load_seconds: float
) -> None:
    before = node.pids()
    with (
        connecting(node.ports.grpc, node.ports.http) as attempts,
        Load(node.address, ["repeatable", "slow_hook"]) as load,
    ):
        load.go_on(load_seconds)
        held = client.start_infer(echo(model="slow_hook", id="on-the-gateway", parameters={"seconds": 1.0}))
        eventually_sync(lambda: hook_log.has("begin on-the-gateway"), what="the hook runs")
        node.kill("gateway")
        killed = time.monotonic()
        # Asked while nobody is there: the next gateway answers.
        assert node.get("/readyz", timeout=30).status in (200, 503)
        away = time.monotonic() - killed
        eventually_sync(lambda: node.pids().get("gateway", before["gateway"]) != before["gateway"], 30)
        load.go_on(load_seconds)
    print(f"back after {away:.2f} s; {summary(load.failures())}")

    assert len(attempts) > 50
    assert set(attempts) == {""}
    assert held.reply().code is grpc.StatusCode.UNAVAILABLE
    codes = {one.code for one in load.failures()}
    assert codes <= {grpc.StatusCode.UNAVAILABLE}, summary(load.failures())
    # Only what was on its way through the dead one; what came later waited.
    assert all(one.sent < killed + 0.25 for one in load.failures()), summary(load.failures())
    after = node.pids()
    assert {name for name in before if before[name] != after[name]} == {"gateway"}
    assert all(os.getpgid(pid) == pid for pid in after.values())
