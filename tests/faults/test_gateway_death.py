"""Workers that are killed behind a gateway, and a gateway that is told to stop (cases L6, L7, S5)."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import final
from uuid import uuid4

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.support import metrics
from tests.support.busy import unique
from tests.support.client import Client, Pending, replies
from tests.support.fleet import Fleet, gateway_process
from tests.support.gateway_fleet import start_again, wait_workers
from tests.support.hooklog import HookLog
from tests.support.messages import Input, arrays, echo, floats, infer
from tests.support.process import ServerProcess, worker_process

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = pytest.mark.slow

SHM = Path("/dev/shm")
REPEATABLE = "repeatable_hook"
"""`slow_hook` again, in a bundle that declares it idempotent."""
BOTH = {"worker0", "worker1"}


@final
@dataclass(frozen=True, slots=True)
class Node:
    """Two workers of one hook thread each behind a gateway.

    Attributes:
        fleet: the processes.
        logs: of the hooks, one for each worker.
        client: connected to the gateway.
    """

    fleet: Fleet
    logs: list[HookLog]
    client: Client

    def begun(self, name: str) -> list[int]:
        """On which workers the hook has begun for a request, once for each time."""
        return [at for at, log in enumerate(self.logs) for line in log.lines() if line == f"begin {name}"]

    def start(self, model: str, name: str, seconds: float) -> Pending:
        """Sends a request whose hook sleeps."""
        return self.client.start_infer(echo(model=model, id=name, parameters={"seconds": seconds}))


@pytest.fixture(scope="module")
def models(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("declared")
    shutil.copytree(fixtures / "slow_hook", folder / REPEATABLE)
    manifest = folder / REPEATABLE / "manifest.yaml"
    manifest.write_text(manifest.read_text() + "\nidempotent: true\n")
    return folder


@pytest.fixture(scope="module")
def _fleet(
    fixtures: Path, models: Path, cache: Path, workspace: Path
) -> Iterator[tuple[Fleet, list[HookLog]]]:
    name = unique("death")
    logs = [HookLog(workspace / f"{name}-{at}.hooks") for at in range(2)]
    workers = [
        worker_process(
            [fixtures, models],
            log=workspace / f"{name}-{at}.log",
            cache=cache,
            include=("echo", "slow_hook", REPEATABLE),
            environ={**log.environ, "INFERENCE_SERVER_HOOK_THREADS": "1"},
        )
        for at, log in enumerate(logs)
    ]
    gateway = gateway_process(workers, log=workspace / f"{name}-gateway.log")
    with Fleet(gateway, workers) as fleet:
        yield fleet, logs


@pytest.fixture
def node(_fleet: tuple[Fleet, list[HookLog]]) -> Iterator[Node]:
    """Both workers are there; a test need not start again what it has killed."""
    fleet, logs = _fleet
    for worker in fleet.workers:
        if not worker.running:
            start_again(worker)
    fleet.wait_ready()
    with Client(fleet.address) as client:
        yield Node(fleet, logs, client)
    assert fleet.gateway.running
    faults = [event for event in fleet.gateway.events() if event.get("level") in ("error", "critical")]
    assert not faults


def kill(worker: ServerProcess) -> None:
    worker.signal(signal.SIGKILL)
    worker.wait()


def busy(node: Node, model: str) -> tuple[int, list[str], dict[str, Pending]]:
    """Four requests: on each worker one whose hook runs and one that waits for it.

    Returns:
        The worker that is to die, the names of its two requests, and all four by name.
    """
    names = [unique(model) for _ in range(4)]
    # Round robin: they alternate between the workers.
    pending = {name: node.start(model, name, 0.7) for name in names[:2]}
    eventually_sync(lambda: all(node.begun(name) for name in names[:2]), what="both hooks run")
    pending |= {name: node.start(model, name, 0.0) for name in names[2:]}
    eventually_sync(
        lambda: [in_flight(worker) for worker in node.fleet.workers] == [2, 2],
        what="one waits on each worker",
    )
    (victim,) = node.begun(names[0])
    (other,) = node.begun(names[1])
    assert {victim, other} == {0, 1}
    return victim, names, pending


def in_flight(worker: ServerProcess) -> float:
    return metrics.parse(worker.get("/metrics").body).value("worker_inflight_requests")


def test_l7_killed_under_a_model_that_is_not_idempotent(node: Node) -> None:
    """Whatever was on it has one answer, UNAVAILABLE, and nothing runs twice."""
    victim, names, pending = busy(node, "slow_hook")
    kill(node.fleet.workers[victim])

    outcomes = {name: one.reply() for name, one in pending.items()}
    lost = [name for name, reply in outcomes.items() if reply.code is not grpc.StatusCode.OK]
    assert len(lost) == 2
    assert names[0] in lost
    for name in lost:
        assert outcomes[name].code is grpc.StatusCode.UNAVAILABLE
        assert f"worker{victim}" in outcomes[name].details
        assert "reactant-not-started" not in outcomes[name].trailers
        assert outcomes[name].seconds < 5
    # Its hook had begun; the other's had not, which nobody but the dead worker can know.
    assert [node.begun(name) for name in lost] == [[victim], []]
    assert all(len(node.begun(name)) == 1 for name in names if name not in lost)


def test_l7_killed_under_an_idempotent_model(node: Node) -> None:
    """The other worker answers; what had not begun runs once, what had begun runs again."""
    victim, names, pending = busy(node, REPEATABLE)
    kill(node.fleet.workers[victim])

    for one in pending.values():
        one.reply().ok()
    assert sorted(node.begun(names[0])) == [0, 1]
    assert [len(node.begun(name)) for name in names[1:]] == [1, 1, 1]


def test_l7_routing_leaves_the_dead_worker_at_once_and_it_comes_back_by_itself(node: Node) -> None:
    worker = node.fleet.workers[1]
    for _ in range(4):
        node.client.infer(echo()).ok()
    kill(worker)
    killed = time.monotonic()
    # A model without hooks is idempotent: no call may fail.
    for _ in range(50):
        node.client.infer(echo()).ok()
    wait_workers(node.fleet.gateway, {"worker0"}, 1.0)
    assert time.monotonic() - killed < 1.0
    assert node.fleet.gateway.get("/readyz").status == 200

    start_again(worker)
    worker.wait_ready()
    wait_workers(node.fleet.gateway, BOTH, 1.5)


def test_s5_regions_are_registered_again_with_a_worker_that_comes_back(node: Node) -> None:
    worker, client = node.fleet.workers[0], node.client
    path = SHM / f"gateway-death-{uuid4().hex}"
    path.write_bytes(floats(1, start=3.0).tobytes() + bytes(16))
    region = f"r-{uuid4().hex}"
    register = pb.SystemSharedMemoryRegisterRequest(name=region, key=f"/{path.name}", byte_size=32)
    try:
        client.call("SystemSharedMemoryRegister", register).ok()
        kill(worker)
        assert_served(client, region)
        start_again(worker)
        worker.wait_ready()
        wait_workers(node.fleet.gateway, BOTH, 1.5)

        with Client(worker.address) as direct:
            status = direct.call("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()).ok()
            assert set(status.regions) == {region}
            assert_served(direct, region)
        for _ in range(4):
            assert_served(client, region)
    finally:
        client.call("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name=region)).ok()
        path.unlink()


def assert_served(client: Client, region: str) -> None:
    shared = Input(
        "X", "FP32", [1, 4], parameters={"shared_memory_region": region, "shared_memory_byte_size": 16}
    )
    reply = client.infer(infer("echo", shared))
    np.testing.assert_array_equal(arrays(reply.ok())["Y"], floats(1, start=3.0))


def test_l6_a_gateway_told_to_stop(fixtures: Path, cache: Path, tmp_path: Path) -> None:
    before = set(SHM.iterdir())
    log = HookLog(tmp_path / "hooks.txt")
    worker = worker_process(
        [fixtures],
        log=tmp_path / "worker.log",
        cache=cache,
        include=("echo", "slow_hook"),
        environ={**log.environ, "INFERENCE_SERVER_HOOK_THREADS": "20"},
    )
    lameduck = {"REACTANT_GATEWAY_LAMEDUCK_SECONDS": "0.5"}
    gateway = gateway_process([worker], log=tmp_path / "gateway.log", environ=lameduck)
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(gateway, [worker]))
        client = stack.enter_context(Client(fleet.address))
        fleet.wait_ready()
        watch = client.health.Watch(HealthCheckRequest(service=""), timeout=30)
        assert next(watch).status == HealthCheckResponse.SERVING
        accepted = [
            client.start_infer(echo(model="slow_hook", id=f"r{at}", parameters={"seconds": 1.2}))
            for at in range(40)
        ]
        eventually_sync(lambda: len(log.lines()) == 20, what="20 hooks run")

        gateway.signal(signal.SIGTERM)

        # Announced first, while requests are still admitted.
        assert next(watch).status == HealthCheckResponse.NOT_SERVING
        assert gateway.get("/readyz").status == 503
        assert gateway.get("/healthz").status == 200
        client.infer(echo()).ok()
        gateway.signal(signal.SIGTERM)  # the same request, said twice

        # Then refused, by an answer or by the end of the connection.
        eventually_sync(lambda: refused_by_answer(client), 2, what="new requests are refused")
        assert not all(one.done() for one in accepted)
        for reply in replies(accepted):
            reply.ok()
        assert gateway.wait(3) == 0
        # The worker goes on as if nothing had been.
        with Client(worker.address) as direct:
            direct.infer(echo()).ok()
        assert worker.stop() == 0
    assert set(SHM.iterdir()) <= before


def refused_by_answer(client: Client) -> bool:
    reply = client.infer(echo())
    assert reply.code in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE), reply
    return reply.trailers == {"reactant-not-started": "1"}
