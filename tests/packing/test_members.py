"""A worker that goes and comes while a node packs."""

from __future__ import annotations

import time

import pytest
from tests.packing.control import Control
from tests.packing.settings import BURST, COSTS, WORKER_NAMES
from tests.packing.traffic import Traffic, bursts
from tests.packing.view import Watch, homes, page_of
from tests.support.node_process import NodeProcess

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow


def places(node: NodeProcess, model: str) -> frozenset[str]:
    """The homes of a model now."""
    return homes(page_of(node)).get(model, frozenset())


def test_a_worker_dies_and_comes_back(packed: NodeProcess, control: Control, rarely: None) -> None:
    """Others answer for its models until it is back, which then are its own again; no request fails."""
    victim = next(iter(places(packed, "hot")))
    others = set(WORKER_NAMES) - {victim}
    with Traffic(packed.address, bursts()) as traffic:
        traffic.go_on(0.5)
        watch = Watch(packed)
        packed.kill(victim)
        killed = time.monotonic()
        eventually_sync(lambda: packed.worker_states()[victim] != "ready", 10, what="it is gone")
        watch.after(
            lambda window: sum(window.rows_by_worker(others, "hot").values()) > 0, 30, "others answer"
        )
        packed.wait_complete()
        # A restart that takes long has its models placed elsewhere in the meantime.
        eventually_sync(
            lambda: any(victim in model.homes for model in control.status().models), 60, what="it has models"
        )
        print(f"it has models again after {time.monotonic() - killed:.1f} s")
        before = traffic.sent["hot"]
        eventually_sync(lambda: traffic.sent["hot"] >= before + BURST, 20, what="it is asked again")
    traffic.assert_all_right()
    assert homes(page_of(packed)).keys() == COSTS.keys()
