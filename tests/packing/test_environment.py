"""A node that packs by environment alone: where models are, and what a repack does to the load."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from tests.packing.conftest import one_home_each
from tests.packing.control import Control
from tests.packing.settings import BUDGET, COSTS, EVEN, FULL, KEPT, LARGEST, SECONDS, SHIFTED, WORKER_NAMES
from tests.packing.traffic import Callers, Traffic, bursts
from tests.packing.view import Watch, Window, homes, page_of, repack_lines, repacks
from tests.support.client import Client
from tests.support.messages import echo
from tests.support.node_process import NodeProcess

from reactant_core.testing import eventually_sync

# The long form waits for device-seconds that four workers take their time to spend.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 if FULL else 120)]

TRIGGERS = ("start", "first", "compute", "membership", "request")
ATTEMPTS = 1 if FULL else 3
"""A machine that is held up makes batches of what has waited, however it is routed."""

LATE_SECONDS = 2.5
"""How late a repack may be: a gateway looks once a second, plans, and is not alone on its machine."""


def test_every_model_has_one_home_before_any_traffic(
    packed: NodeProcess, client: Client, rarely: None
) -> None:
    """As deployment.md has it seen, and as requests are routed."""
    assert one_home_each(packed)
    placed = homes(page_of(packed))
    # By nothing but their number: twelve models on four workers.
    assert {worker for workers in placed.values() for worker in workers} == set(WORKER_NAMES)
    watch = Watch(packed)
    for _ in range(3):
        for model in COSTS:
            client.infer(echo(model=model)).ok()
    window = watch.after(lambda window: window.rows() >= 3 * len(COSTS), 10, "all rows are counted")
    for model, workers in placed.items():
        assert window.rows_by_worker(WORKER_NAMES, model).keys() == workers


def test_the_load_is_even_after_a_repack_and_batches_are_fuller(
    packed: NodeProcess, control: Control
) -> None:
    with Traffic(packed.address, bursts()) as traffic:
        for _ in range(ATTEMPTS):
            # The first repack that knows of traffic, and one more.
            control.repacked("compute")
            even = settled(packed, traffic)
            assert one_home_each(packed)

            control.set_policy(mode="round_robin")
            watch = Watch(packed)
            traffic.go_on(SECONDS)
            apart = watch.window()
            control.set_policy(mode="lpt_packing")
            print(
                f"the busiest worker has {even.unevenness(WORKER_NAMES):.2f} equal parts; rows a dispatch: "
                f"{even.rows() / even.dispatches():.2f}, by turns {apart.rows() / apart.dispatches():.2f}"
            )
            if even.unevenness(WORKER_NAMES) <= EVEN and fuller(even, apart) >= 2:
                break
        # Packing began anew with the mode.
        eventually_sync(lambda: repacks(page_of(packed), "first") >= 1, 60, what="a first repack")
    traffic.assert_all_right()

    lines = repack_lines(packed.events("gateway"))
    assert any(line["moved"] and line["imbalance_after"] < line["imbalance_before"] for line in lines)
    assert even.unevenness(WORKER_NAMES) <= EVEN, even.by_worker(WORKER_NAMES)
    assert fuller(even, apart) >= 2
    # Without packing every model runs everywhere.
    assert len(apart.rows_by_worker(WORKER_NAMES, "hot")) == len(WORKER_NAMES)


def test_another_model_becomes_the_hot_one(packed: NodeProcess, control: Control) -> None:
    with Traffic(packed.address, bursts()) as traffic:
        control.repacked("compute", 1)
        settled(packed, traffic)
        uneven, watch = homes(page_of(packed)), Watch(packed)
        traffic.change(bursts(SHIFTED))
        # The one on its way may know little of the change yet; the next one does.
        control.repacked("compute", 2)
        soon = watch.window()
        even = settled(packed, traffic)
        after = homes(page_of(packed))
    traffic.assert_all_right()

    print(
        f"repacked twice within {soon.compute():.2f} device-seconds, {soon.seconds:.1f} s; "
        f"then the busiest worker has {even.unevenness(WORKER_NAMES):.2f} equal parts"
    )
    assert soon.compute() <= 2 * (BUDGET.later + LATE_SECONDS * soon.compute() / soon.seconds)
    assert after != uneven
    assert even.unevenness(WORKER_NAMES) <= KEPT, even.by_worker(WORKER_NAMES)
    assert one_home_each(packed)


def test_every_repack_says_what_it_did(packed: NodeProcess, control: Control) -> None:
    """Those of this test and of all before it."""
    control.repack()

    def told() -> bool:
        counted = page_of(packed)
        lines[:] = repack_lines(packed.events("gateway"))
        return all(
            sum(line["trigger"] == trigger for line in lines) == repacks(counted, trigger)
            for trigger in TRIGGERS
        ) and len(lines) == repacks(counted)

    lines: list[Mapping[str, Any]] = []
    eventually_sync(told, 10, what="a line for each")
    fastest = max(line["compute_seconds"] / max(line["wall_seconds"], 1.0) for line in lines)
    for line in lines:
        assert line["level"] == "info"
        assert line["placed"] == len(COSTS)
        assert 0 <= line["moved"] <= len(COSTS)
        assert line["wall_seconds"] >= 0
        # Nothing here has weights.
        assert line["bytes_moved"] == 0
        if line["trigger"] in ("first", "compute"):
            least = BUDGET.first if line["trigger"] == "first" else BUDGET.later
            assert least <= line["compute_seconds"] <= least + LATE_SECONDS * fastest
    assert "request" in {line["trigger"] for line in lines}


def test_one_model_has_all_the_traffic(packed: NodeProcess, control: Control, client: Client) -> None:
    """Nothing can make that even: it stays on one worker, and the others are still served."""
    with Callers(packed.address, LARGEST, lambda number: echo(model="hot", start=number)) as callers:
        control.repacked("compute", 3)
        placed, watch = homes(page_of(packed)), Watch(packed)
        control.repacked("compute")
        assert homes(page_of(packed)) == placed
        assert watch.window().rows_by_worker(WORKER_NAMES, "hot").keys() == placed["hot"]
        for model in COSTS:
            client.infer(echo(LARGEST, model=model)).ok()
    assert not callers.failures


def fuller(packed: Window, apart: Window) -> float:
    """How many times as many rows an execution has in the first window as in the second."""
    return packed.rows() / packed.dispatches() / (apart.rows() / apart.dispatches())


def settled(node: NodeProcess, traffic: Traffic) -> Window:
    """What a while looks like in which the load is even; after half a minute the next one, whatever it is."""
    ends = time.monotonic() + max(30.0, 3 * SECONDS)
    while True:
        watch = Watch(node)
        traffic.go_on(SECONDS)
        found = watch.window()
        if found.unevenness(WORKER_NAMES) <= EVEN or time.monotonic() > ends:
            return found
