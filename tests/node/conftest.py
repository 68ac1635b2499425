"""One whole node for the tests that leave it whole, and others for those that do not.

REACTANT_TEST_FULL=1 has clients send for half a minute where a test is about load, instead of a few seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.busy import unique
from tests.support.client import Client
from tests.support.hooklog import HookLog
from tests.support.node_process import MakeNode, NodeProcess, node_process, serving

WORKERS = 4
MODELS = ("echo", "repeatable", "slow", "slow_hook")
"""`slow_hook` is the one that must never run twice."""


@pytest.fixture(scope="session")
def load_seconds() -> float:
    """How long clients send before something happens, and again after it."""
    return 15.0 if os.environ.get("REACTANT_TEST_FULL") == "1" else 1.5


@pytest.fixture(scope="package")
def hook_log(workspace: Path) -> HookLog:
    """What the hooks of all workers of all nodes note."""
    return HookLog(workspace / "node-hooks.txt")


@pytest.fixture(scope="package")
def make_node(workspace: Path, fixtures: Path, cache: Path, hook_log: HookLog) -> MakeNode:
    """A node of CPU workers with the models above, not yet started."""

    def make(*, environ: dict[str, str] | None = None, **options: Any) -> NodeProcess:
        options = {"folder": workspace / unique("node"), "include": MODELS, **options}
        settings = {**hook_log.environ, "INFERENCE_SERVER_HOOK_THREADS": "8", **(environ or {})}
        return node_process([fixtures], cache=cache, environ=settings, **options)

    return make


@pytest.fixture(scope="package")
def _shared(make_node: MakeNode) -> Iterator[NodeProcess]:
    with serving(make_node(workers=WORKERS)) as node:
        yield node


@pytest.fixture
def node(_shared: NodeProcess) -> Iterator[NodeProcess]:
    """A node that serves; whatever a test does to its children, it gets over by itself."""
    before = _shared.pid
    _shared.wait_complete()
    yield _shared
    _shared.wait_complete()
    assert _shared.pid == before


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    """Connected to that node."""
    with Client(node.address) as connected:
        yield connected


@pytest.fixture
def start(make_node: MakeNode) -> Iterator[MakeNode]:
    """Starts nodes of the test's own; whatever still runs at its end is killed."""
    with ExitStack() as stack:

        def begin(**options: Any) -> NodeProcess:
            node: NodeProcess = stack.enter_context(make_node(**options))
            stack.callback(_end, node)
            return node

        yield begin


def _end(node: NodeProcess) -> None:
    if node.server.running:
        node.die()
