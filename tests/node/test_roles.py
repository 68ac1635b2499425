"""Workers and a gateway as two nodes of one machine, and what SIGHUP does to each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pytest
import yaml
from tests.support.client import Client
from tests.support.messages import echo
from tests.support.node_load import Load
from tests.support.node_process import MakeNode, NodeProcess, serving
from tests.support.process import HOST

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow


@final
@dataclass(frozen=True, slots=True)
class Pair:
    """A node of workers and a node that is a gateway to them.

    Attributes:
        workers: role `workers`.
        gateway: role `gateway`.
        file: the gateway's file.
    """

    workers: NodeProcess
    gateway: NodeProcess
    file: Path

    def write(self, count: int, **settings: object) -> None:
        """A gateway file with the first `count` workers."""
        self.file.write_text(yaml.safe_dump(gateway_file(self.workers, count) | settings))

    def served_by(self) -> set[str]:
        """The workers that the gateway knows and that are ready."""
        states = self.gateway.worker_states()
        return {name for name, state in states.items() if state == "ready"}


def gateway_file(workers: NodeProcess, count: int) -> dict[str, object]:
    ports = workers.ports
    return {
        "endpoints": [f"{HOST}:{ports.base + n}" for n in range(count)],
        "metrics_endpoints": [f"{HOST}:{ports.metrics_base + n}" for n in range(count)],
        "worker_names": [f"machine-{n}" for n in range(count)],
        "listen": {"host": HOST},
        "lameduck_seconds": 0.2,
    }


@pytest.fixture(scope="module")
def pair(make_node: MakeNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    file = tmp_path_factory.mktemp("roles") / "gateway.yml"
    workers = make_node(
        workers=2, environ={"REACTANT_ROLE": "workers", "INFERENCE_SERVER_LAMEDUCK_SECONDS": "0.2"}
    )
    gateway = make_node(environ={"REACTANT_ROLE": "gateway", "REACTANT_GATEWAY_FILE": str(file)})
    two = Pair(workers, gateway, file)
    two.write(2)
    with serving(workers), serving(gateway, expected="stays"):
        yield two


def test_a_gateway_of_its_own_serves_the_workers_of_another_node(pair: Pair) -> None:
    assert pair.workers.pids().keys() == {"worker0", "worker1"}
    assert pair.gateway.pids().keys() == {"gateway"}
    assert (pair.workers.status().role, pair.gateway.status().role) == ("workers", "gateway")
    with Client(pair.gateway.address) as client:
        for _ in range(6):
            client.infer(echo()).ok()
    page = pair.gateway.page()
    for name in ("machine-0", "machine-1"):
        assert page.value("gateway_replica_routed_total", worker=name, model="echo") == 3
        assert page.value("worker_requests_total", worker=name, model="echo", code="OK") == 3


def test_a_hangup_is_followed_and_ends_nothing(pair: Pair) -> None:
    workers, gateway = pair.workers, pair.gateway
    before = workers.pids() | gateway.pids()

    def hang_up(node: NodeProcess, said: str, level: str) -> None:
        count = len([event for event in node.events() if said in event["event"]])
        node.hang_up()
        eventually_sync(
            lambda: [e["level"] for e in node.events() if said in e["event"]][count:] == [level],
            20,
            what=f"the log says {said!r}",
        )

    with Load(gateway.address, ["repeatable"], rate=50) as load:
        pair.write(1, logging={"level": "warning"})
        gateway.hang_up()
        eventually_sync(lambda: pair.served_by() == {"machine-0"}, what="one worker is left")
        # The level is another too: what is only information is not said any more.
        assert not [e for e in gateway.events("gateway") if e["event"] == "reloaded"]

        pair.file.write_text("endpoints: [nowhere\n")
        hang_up(gateway, "reload refused, the configuration in force stays", "error")
        pair.file.write_text("endpoints: []\nloging: {level: debug}\n")
        hang_up(gateway, "reload refused, the configuration in force stays", "error")
        assert pair.served_by() == {"machine-0"}

        pair.write(2)
        hang_up(gateway, "reloaded", "info")
        eventually_sync(lambda: pair.served_by() == {"machine-0", "machine-1"}, what="both are back")
        hang_up(workers, "SIGHUP: handed on to", "info")
        load.go_on(0.5)
    load.assert_no_failure()
    assert workers.pids() | gateway.pids() == before
    assert workers.status().pid == workers.pid
