"""A node of four CPU workers that packs twelve models by what stands in its environment alone.

REACTANT_TEST_FULL=1 looks at the load for half a minute where it is a few seconds otherwise, and holds it to
the tenth that it was specified for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.packing.control import Control
from tests.packing.settings import BUDGET, BY_ENVIRONMENT, COSTS, WORKERS
from tests.packing.view import homes, page_of
from tests.support.busy import unique
from tests.support.client import Client
from tests.support.messages import echo
from tests.support.node_process import NodeProcess, node_process, serving

from reactant_core.testing import eventually_sync

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def packing_bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundles of `bundles.py`: folders `catalogue` and `heavy`."""
    folder = tmp_path_factory.mktemp("packing") / "bundles"
    built = subprocess.run(
        [sys.executable, "-m", "tests.packing.bundles", str(folder)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="package")
def _packed(workspace: Path, packing_bundles: Path, cache: Path) -> Iterator[NodeProcess]:
    node = node_process(
        [packing_bundles / "catalogue"],
        folder=workspace / unique("packed"),
        cache=cache,
        workers=WORKERS,
        environ={**BY_ENVIRONMENT, **BUDGET.environ, "REACTANT_GATEWAY_WORKER_CLIENT_PROBE_SECONDS": "0.5"},
    )
    with serving(node):
        yield node


@pytest.fixture
def packed(_packed: NodeProcess) -> Iterator[NodeProcess]:
    """A node that packs, every model of which has one home; a test leaves it so."""
    _packed.wait_complete()
    yield _packed
    _packed.wait_complete()
    with Client(_packed.address) as client:
        for model in COSTS:
            client.infer(echo(model=model), wait_for_ready=True).ok()
    eventually_sync(lambda: one_home_each(_packed), 10, what="every model has one home again")


@pytest.fixture
def control(packed: NodeProcess) -> Iterator[Control]:
    """Of that node's gateway."""
    with Control(packed.address) as connected:
        yield connected


@pytest.fixture
def client(packed: NodeProcess) -> Iterator[Client]:
    """Connected to that node."""
    with Client(packed.address) as connected:
        yield connected


@pytest.fixture
def rarely(control: Control) -> Iterator[None]:
    """Nothing is repacked because of what the fleet has run."""
    control.set_policy(rebalance_compute_seconds=1e6, first_rebalance_compute_seconds=1e6)
    yield
    control.set_policy(rebalance_compute_seconds=BUDGET.later, first_rebalance_compute_seconds=BUDGET.first)


def one_home_each(node: NodeProcess) -> bool:
    """Every model of the catalogue is placed on one worker, and no other model is."""
    found = homes(page_of(node))
    return found.keys() == COSTS.keys() and all(len(workers) == 1 for workers in found.values())
