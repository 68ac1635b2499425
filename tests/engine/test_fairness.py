"""`fair`: under saturation models get device time by their weights, whatever one execution of each costs."""

from __future__ import annotations

import statistics
import time

import pytest
from tests.engine.settings import FULL, IDLE
from tests.engine.traffic import Closed
from tests.support.messages import echo
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import control_pb2, control_pb2_grpc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TOLERANCE = 0.05 if FULL else 0.2
SECONDS = 20.0
"""Of the full form. The short one ends after some executions of the costly model, whatever one takes."""
SETTLING_SECONDS = 0.7
AT_ONCE = 24
"""Enough that neither queue is empty while a client is slow to send the next."""


def set_weight(target: Target, model: str, weight: float) -> None:
    stub = control_pb2_grpc.ControlServiceStub(target.client.channel)
    stub.SetModelPolicy(control_pb2.SetModelPolicyRequest(model=model, weight=weight), timeout=5)


def device_seconds(target: Target) -> dict[str, float]:
    page = target.page()
    return {name: page.value("worker_compute_seconds_total", model=name) for name in ("heavy", "light")}


def executions(target: Target) -> float:
    return target.page().value("worker_dispatch_total", model="heavy")


def under_saturation(target: Target, count: int) -> tuple[dict[str, float], float]:
    """Device time of both models while both always have requests waiting, and the time that passed."""
    address = target.process.address
    with (
        Closed(address, lambda n: echo(model="heavy", start=float(n % 1000)), AT_ONCE) as heavy,
        Closed(address, lambda n: echo(model="light", start=float(n % 1000)), AT_ONCE) as light,
    ):
        time.sleep(SETTLING_SECONDS)
        before, begin = device_seconds(target), time.monotonic()
        if FULL:
            time.sleep(SECONDS)
        else:
            enough = executions(target) + count
            eventually_sync(lambda: executions(target) >= enough, 60)
        after, end = device_seconds(target), time.monotonic()
    for traffic in (heavy, light):
        traffic.assert_all_right()
    return {name: after[name] - before[name] for name in before}, end - begin


@pytest.fixture
def used(fair: Target) -> Target:
    """The idle models have been used, and are loaded."""
    for name in IDLE:
        for _ in range(3):
            fair.client.infer(echo(model=name)).ok()
    return fair


def test_device_time_follows_the_weights(used: Target) -> None:
    spent, passed = under_saturation(used, 40)

    ratio = spent["heavy"] / spent["light"]
    print(f"heavy {spent['heavy']:.2f} s, light {spent['light']:.2f} s in {passed:.2f} s: {ratio:.3f}")
    assert ratio == pytest.approx(3.0, rel=TOLERANCE)
    # Overlapping executions are not counted twice, and the device was not left idle.
    assert 0.6 * passed < sum(spent.values()) < 1.05 * passed


def test_a_weight_set_while_it_serves_counts_from_then_on(used: Target) -> None:
    """The cheap model gets three times the time of the one that costs ten times as much."""
    set_weight(used, "heavy", 1.0)
    set_weight(used, "light", 3.0)
    try:
        spent, _ = under_saturation(used, 20)
    finally:
        set_weight(used, "heavy", 3.0)
        set_weight(used, "light", 1.0)

    assert spent["light"] / spent["heavy"] == pytest.approx(3.0, rel=TOLERANCE)


def test_who_comes_late_waits_for_no_queue(used: Target) -> None:
    """A model that was idle gets in beside one that has kept the device busy, long as its queue may be."""
    with Closed(used.process.address, lambda n: echo(model="heavy"), AT_ONCE) as heavy:
        time.sleep(SETTLING_SECONDS)
        late = [used.client.infer(echo(model="idle0")) for _ in range(5)]
    heavy.assert_all_right()
    for reply in late:
        reply.ok()
    queue = statistics.median(one.seconds for one in heavy.outcomes)
    assert statistics.median(reply.seconds for reply in late) < queue / 3
