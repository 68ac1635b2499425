"""A worker of a serving node is killed (cases L7, S5)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import grpc
import numpy as np
import pytest
from tests.support.busy import unique
from tests.support.client import Client, Pending
from tests.support.hooklog import HookLog
from tests.support.messages import Input, arrays, echo, floats, infer
from tests.support.node_distance import distant
from tests.support.node_load import Load, summary
from tests.support.node_process import NodeProcess

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = pytest.mark.slow

MODELS = ("slow_hook", "repeatable")
"""One that must not run twice, and one that may."""

SHM = Path("/dev/shm")
GONE_SECONDS = 1.0


def test_l7_a_worker_is_killed_while_clients_send(
    node: NodeProcess, client: Client, hook_log: HookLog, load_seconds: float
) -> None:
    """Idempotent: no error. Others: UNAVAILABLE for what was executing, and nothing runs twice."""
    victim = "worker0"
    with Load(node.address, MODELS) as load:
        load.go_on(load_seconds)
        once, again = (hold(client, model, 2 * len(node.worker_states())) for model in MODELS)
        eventually_sync(lambda: begun(hook_log) >= once.keys() | again.keys(), what="all hooks run")

        pid, killed = node.kill(victim), time.monotonic()

        eventually_sync(lambda: not serves(node, victim), GONE_SECONDS, what="routing leaves the dead worker")
        left = time.monotonic() - killed
        routed = sent_to(node, victim)
        load.go_on(0.5)
        assert serves(node, victim) or sent_to(node, victim) == routed
        eventually_sync(lambda: serves(node, victim), 60, what="the worker gets requests again")
        back = time.monotonic() - killed
        load.go_on(load_seconds)
        assert sent_to(node, victim) > routed
    print(f"left after {left:.2f} s, back after {back:.1f} s, {load.sent} requests")
    assert left < GONE_SECONDS
    assert node.pids()[victim] != pid

    load.assert_no_failure("repeatable")
    lost = [reply for one in once.values() if (reply := one.reply()).code is not grpc.StatusCode.OK]
    assert lost
    for reply in lost:
        assert reply.code is grpc.StatusCode.UNAVAILABLE
        assert victim in reply.details
        assert "reactant-not-started" not in reply.trailers
    for failed in load.failures("slow_hook"):
        assert failed.code is grpc.StatusCode.UNAVAILABLE, failed
        assert victim in failed.details
        assert not failed.not_started
        assert failed.sent < killed + 0.25, failed
    assert len(load.failures("slow_hook")) <= 10, summary(load.failures())
    runs = Counter(hook_log.lines())
    assert {name: runs[f"begin {name}"] for name in once} == dict.fromkeys(once, 1)
    for one in load.outcomes:
        if one.model == "slow_hook":
            # What was lost may have begun; each of the others ran, and once.
            assert runs[f"begin {one.id}"] in ((1,) if one.ok else (0, 1))
    # What was on the dead worker and may run twice has run on another.
    for pending in again.values():
        pending.reply().ok()
    twice = [name for name in again if runs[f"begin {name}"] == 2]
    assert twice
    assert all(runs[f"begin {name}"] == 1 for name in again if name not in twice)


def test_s5_a_region_is_there_again_with_the_worker(node: NodeProcess, client: Client) -> None:
    """Requests with a region are answered rightly by every worker, also by one that has come back."""
    victim = "worker1"
    path = SHM / f"node-test-{uuid4().hex}"
    path.write_bytes(floats(1, start=3.0).tobytes())
    region = f"r-{uuid4().hex}"
    shared = Input(
        "X", "FP32", [1, 4], parameters={"shared_memory_region": region, "shared_memory_byte_size": 16}
    )

    def served_by_all() -> bool:
        reply = client.infer(infer("echo", shared))
        np.testing.assert_array_equal(arrays(reply.ok())["Y"], floats(1, start=3.0))
        return all(answered_by(node, name) > before[name] for name in before)

    try:
        register = pb.SystemSharedMemoryRegisterRequest(name=region, key=f"/{path.name}", byte_size=16)
        client.call("SystemSharedMemoryRegister", register).ok()
        client.infer(echo()).ok()
        before = {name: answered_by(node, name) for name in node.worker_states()}
        eventually_sync(served_by_all, 20, what="each worker has answered")
        node.kill(victim)
        eventually_sync(lambda: not serves(node, victim), GONE_SECONDS)
        before = {name: answered_by(node, name) for name in node.worker_states()}
        eventually_sync(served_by_all, 60, what="each worker has answered again")
    finally:
        client.call("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name=region)).ok()
        path.unlink()


@pytest.mark.parametrize("name", ["worker2", "gateway"])
def test_a_child_is_restarted_as_asked_while_clients_send(
    node: NodeProcess, name: str, load_seconds: float
) -> None:
    """No request fails, and no other process is touched."""
    before = node.pids()
    models = MODELS
    with (
        distant(node.ports.grpc) as far_away,
        Load(node.address, models, rate=100) as load,
        # Their requests are on their way while they are told to go.
        Load(far_away, models, rate=100) as late,
    ):
        load.go_on(load_seconds / 2)
        node.restart(name)
        eventually_sync(restarted(node, name, before[name]), 60, what=f"{name} is another process")
        node.wait_complete()
        load.go_on(load_seconds)
    load.assert_no_failure()
    late.assert_no_failure()
    after = node.pids()
    assert {one: pid for one, pid in after.items() if pid != before[one]}.keys() == {name}
    (child,) = (child for child in node.status().children if child.name == name)
    assert child.failures == 0 or name != "worker2"
    assert child.last_exit == "exited with code 0"


def hold(client: Client, model: str, count: int) -> dict[str, Pending]:
    """Requests whose hooks sleep, by name."""
    names = [unique(f"held-{model}") for _ in range(count)]
    return {
        name: client.start_infer(echo(model=model, id=name, parameters={"seconds": 1.5})) for name in names
    }


def begun(log: HookLog) -> set[str]:
    """The requests whose hooks have begun."""
    return {line.removeprefix("begin ") for line in log.lines() if line.startswith("begin ")}


def restarted(node: NodeProcess, name: str, pid: int) -> Callable[[], bool]:
    return lambda: node.pids().get(name, pid) != pid


def serves(node: NodeProcess, worker: str) -> bool:
    return node.page().value("gateway_worker_ready", worker=worker) == 1


def answered_by(node: NodeProcess, worker: str) -> float:
    return node.page().value("worker_requests_total", worker=worker, model="echo", code="OK")


def sent_to(node: NodeProcess, worker: str) -> float:
    return node.page().value("gateway_replica_routed_total", worker=worker)
