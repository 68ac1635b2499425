"""SIGTERM to a worker with work in hooks, in metas, on the device and before it (case L6)."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import grpc
import pytest
from tests.engine.settings import Start
from tests.engine.traffic import Arrivals, codes, staged
from tests.support.busy import steps_for
from tests.support.client import replies
from tests.support.hooklog import HookLog
from tests.support.messages import echo, slow, slow_hook

from reactant_core.testing import eventually_sync

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RUNNING = QUEUED = 20
METAS = 4
"""Two of which run, of two stages each."""
LAMEDUCK_SECONDS = 0.3
PROMPTLY_SECONDS = 5.0


def shared_memory() -> list[Path]:
    """The server's own objects, of whatever worker."""
    return list(Path("/dev/shm").glob("reactant*"))


def test_l6_twenty_run_twenty_wait(start: Start, hooks_noted: HookLog) -> None:
    """All of them are answered, whoever comes is refused, and it ends when the last answer has left."""
    before = set(shared_memory())
    target = start(
        "fair",
        ("echo", "slow", "slow_hook", "staged"),
        INFERENCE_SERVER_LAMEDUCK_SECONDS=str(LAMEDUCK_SECONDS),
        INFERENCE_SERVER_HOOK_THREADS=str(RUNNING),
    )
    client = target.client
    steps = steps_for(0.05, client)
    running = [client.start_infer(slow_hook(1.5, id=f"l6-{n}")) for n in range(RUNNING)]
    eventually_sync(lambda: all(hooks_noted.has(f"begin l6-{n}") for n in range(RUNNING)))
    queued = [client.start_infer(slow(steps, start=float(n))) for n in range(QUEUED)]
    piped = [client.start_infer(staged([steps] * 2, number)) for number in range(METAS)]
    eventually_sync(lambda: target.in_flight() == RUNNING + QUEUED + METAS)

    with Arrivals(target.process.address, lambda n: echo(start=float(n)), 50) as arriving:
        target.process.signal(signal.SIGTERM)
        begin = time.monotonic()
        for reply in replies([*running, *queued, *piped]):
            reply.ok()
        answered = time.monotonic()
        assert target.process.wait(PROMPTLY_SECONDS) == 0
        took = time.monotonic() - answered
    print(
        f"answered after {answered - begin:.2f} s, ended {took:.2f} s later; "
        f"arrivals {codes(arriving.outcomes)}"
    )

    assert answered - begin > LAMEDUCK_SECONDS
    late = arriving.between(begin + 3 * LAMEDUCK_SECONDS, answered)
    assert codes(late).keys() == {"UNAVAILABLE"}
    assert any("draining" in one.details for one in late)
    assert codes(arriving.outcomes).keys() <= {"OK", "UNAVAILABLE"}
    assert all(one.right for one in arriving.outcomes if one.code is grpc.StatusCode.OK)
    assert set(shared_memory()) <= before
    statuses = [event.get("event") for event in target.process.events()]
    assert "drain timed out" not in statuses
