"""Loading a model disturbs nobody: the server stays ready, its health is told at once, the others serve."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from tests.engine.probe import Findings, Probe
from tests.engine.settings import FULL, LOADS
from tests.engine.traffic import Closed, percentile
from tests.support.messages import echo
from tests.support.target import Target

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HEALTH_SECONDS = 0.05 if FULL else 0.25
"""99th percentile."""
BEFORE = 0.0 if FULL else 4.0
"""So many times what it took before the loads is added: the short form shares its cores with others."""
BEFORE_SECONDS = 1.5


def slow_part(found: Findings) -> float:
    """99th percentile, of the slower of the two."""
    return max(percentile(found.live_seconds, 0.99), percentile(found.health_seconds, 0.99))


def test_loads_under_saturation(fair: Target) -> None:
    """Programs to compile, vocabularies to read, all beside two models that keep the device busy."""
    client, address = fair.client, fair.process.address
    names = [f"program{number}" for number in range(LOADS)]
    setups = [*names[: LOADS - 1], "long_setup"]
    misses = fair.page().value("worker_compile_cache_misses_total")
    with ExitStack() as stack:
        busy = [
            stack.enter_context(Closed(address, lambda n: echo(model="heavy", start=float(n)), 4)),
            stack.enter_context(Closed(address, lambda n: echo(model="light", start=float(n)), 4)),
        ]
        with Probe(address) as before:
            time.sleep(BEFORE_SECONDS)
        probe = stack.enter_context(Probe(address))
        begin = time.monotonic()
        for name in setups:
            client.load(name, timeout=60).ok()
        took = time.monotonic() - begin
        compiled = fair.page().value("worker_compile_cache_misses_total") - misses
    for name in setups:
        client.unload(name).ok()

    for traffic in busy:
        traffic.assert_all_right()
    found = probe.findings
    slowest, usual = slow_part(found), slow_part(before.findings)
    print(
        f"{len(setups)} loads, {compiled:.0f} compiled, {took:.1f} s, "
        f"{len(found.live_seconds)} probes, 99 %: {1e3 * slowest:.0f} ms, before {1e3 * usual:.0f} ms"
    )
    assert compiled == 2 * (LOADS - 1)
    assert not found.errors
    assert found.not_ready == 0
    assert len(found.live_seconds) > 20
    assert slowest < HEALTH_SECONDS + BEFORE * usual
