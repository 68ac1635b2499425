"""A worker that goes and comes while a node packs."""

from __future__ import annotations

import time

import pytest
from tests.packing.control import Control
from tests.packing.settings import COSTS, WORKER_NAMES
from tests.packing.traffic import Traffic, bursts
from tests.packing.view import homes, page_of, repacks
from tests.support.node_process import NodeProcess

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow


def places(node: NodeProcess, model: str) -> frozenset[str]:
    """The homes of a model now."""
    return homes(page_of(node)).get(model, frozenset())


def test_a_worker_dies_and_comes_back(packed: NodeProcess, control: Control, rarely: None) -> None:
    """Its models get other homes at once, and it gets models again; no request fails."""
    victim = next(iter(places(packed, "hot")))
    others = set(WORKER_NAMES) - {victim}
    with Traffic(packed.address, bursts()) as traffic:
        before = repacks(page_of(packed), "membership")
        traffic.go_on(0.5)
        packed.kill(victim)
        eventually_sync(
            lambda: {worker for workers in homes(page_of(packed)).values() for worker in workers} == others,
            20,
            what="every model is at home elsewhere",
        )
        gone = homes(page_of(packed))
        assert gone.keys() == COSTS.keys()
        assert all(len(workers) == 1 for workers in gone.values())
        killed = time.monotonic()
        eventually_sync(
            lambda: any(victim in model.homes for model in control.status().models),
            90,
            what="it has models again",
        )
        print(f"it has models again after {time.monotonic() - killed:.1f} s")
    assert repacks(page_of(packed), "membership") >= before + 2
    traffic.assert_all_right()
