"""A unit of Type=notify (case M8)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.busy import unique
from tests.support.client import Client
from tests.support.messages import echo
from tests.support.node_notify import Manager
from tests.support.node_process import MakeNode, NodeProcess, environ_of

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow

VARIABLES = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_m8_what_it_is_told(make_node: MakeNode, tmp_path: Path, abstract: bool) -> None:
    """READY=1 once, from the main process, when the node serves; what comes before and after."""
    address = f"@{unique('reactant-test')}-{os.getpid()}" if abstract else str(tmp_path / "notify")
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}
    front, workers = "gateway", 2
    if abstract:
        # Without a watchdog this time, and with the worker itself in front.
        del environ["WATCHDOG_USEC"]
        front, workers = "worker0", 1
    node: NodeProcess = make_node(workers=workers, environ=environ)
    with Manager(address, at_ready=serves(node)) as manager, node:
        eventually_sync(lambda: not node.server.running or "READY=1" in manager.texts, 90, what="READY=1")
        assert node.server.running, node.server.tail()
        for name, pid in node.pids().items():
            assert not VARIABLES & environ_of(pid).keys(), name
        if not abstract:
            manager.wait_told("WATCHDOG=1", 20, times=4)
            # A child that comes back is no second start.
            node.wait_said("ready: gRPC", "supervisor")
            node.kill(front)
            node.wait_said("ready: gRPC", "supervisor", times=2, seconds=60)
        assert "STOPPING=1" not in manager.texts
        assert node.stop() == 0
        manager.wait_told("STOPPING=1", 5)
        main = node.pid

    texts = manager.texts
    assert texts.count("READY=1") == texts.count("STOPPING=1") == 1
    assert {told.pid for told in manager.told} == {main}
    assert manager.at_ready == [(200, True)]
    before = [text for text in texts[: texts.index("READY=1")] if text.startswith("STATUS=")]
    assert any(re.search(r"worker[01]: starting, .*\d+/\d+", text) for text in before), before
    assert any(f"{front}: ready" in text for text in texts if text.startswith("STATUS="))
    assert ("WATCHDOG=1" in texts) == (not abstract)
    assert not node.errors()


def serves(node: NodeProcess) -> Callable[[], tuple[int, bool]]:
    """Asks whether it does: the status of /readyz, and whether a request is answered."""

    def ask() -> tuple[int, bool]:
        status = node.get("/readyz").status
        with Client(node.address) as client:
            return status, client.infer(echo()).response is not None

    return ask


def test_m8_without_a_manager_nobody_is_told(node: NodeProcess) -> None:
    assert not environ_of(node.pid).get("NOTIFY_SOCKET")
    for pid in node.pids().values():
        assert not VARIABLES & environ_of(pid).keys()
    assert node.said("NOTIFY_SOCKET cannot be told") == 0
