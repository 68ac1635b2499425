from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from reactant_gateway.families import own_families
from reactant_gateway.metrics import GatewayMetrics, Watched
from reactant_gateway.render import render


class Gateway:
    """Metrics and what their page says."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = GatewayMetrics(self.registry, info={"version": "1", "mode": "round_robin"})
        self.metrics.keep(models=["echo", "slow"], workers=["worker0", "worker1"])

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def lines(self, part: str) -> list[str]:
        page = generate_latest(self.registry).decode()
        return [line for line in page.splitlines() if part in line and not line.startswith("#")]


def test_requests_count_by_model_and_code() -> None:
    gateway = Gateway()
    for code in (0, 0, 8, 14, 99, -1):
        gateway.metrics.finished("echo", code, "worker0", 0.1, None)

    counts = {
        code: gateway.value("gateway_requests_total", model="echo", code=code)
        for code in ("OK", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNKNOWN", "CANCELLED")
    }
    assert counts == {"OK": 2, "RESOURCE_EXHAUSTED": 1, "UNAVAILABLE": 1, "UNKNOWN": 2, "CANCELLED": None}


def test_latencies_fall_into_buckets() -> None:
    gateway = Gateway()
    for seconds in (0.0, 0.0005, 0.0006, 60.0, 61.0):
        gateway.metrics.finished("echo", 0, "worker1", seconds, seconds / 2)
    gateway.metrics.finished("echo", 4, "worker1", 7.0, None)
    gateway.metrics.finished("echo", 14, None, 0.1, None)

    name = "gateway_request_latency_seconds"
    buckets = {
        le: gateway.value(f"{name}_bucket", model="echo", le=le) for le in ("0.0005", "0.001", "60.0", "+Inf")
    }
    assert buckets == {"0.0005": 2, "0.001": 3, "60.0": 4, "+Inf": 5}
    assert gateway.value(f"{name}_count", model="echo") == 5
    assert gateway.value(f"{name}_sum", model="echo") == pytest.approx(121.0011)
    assert gateway.value(f"{name}_count", model="slow") is None
    assert gateway.value("gateway_worker_latency_seconds_count", worker="worker1") == 5
    assert gateway.value("gateway_worker_latency_seconds_bucket", worker="worker1", le="30.0") == 4


def test_m4_unknown_names_are_no_series() -> None:
    gateway = Gateway()
    gateway.metrics.finished("nope", 5, None, 0.1, None)
    before = gateway.lines("gateway_")
    for index in range(10_000):
        gateway.metrics.finished(f'no-such-{index}"\\\n', 5, f"nobody-{index}", 0.1, 0.1)

    assert gateway.value("gateway_requests_total", model="", code="NOT_FOUND") == 10_001
    assert len(gateway.lines("gateway_")) == len(before)


def test_m4_models_that_come_and_go_leave_nothing_behind() -> None:
    gateway = Gateway()
    gateway.metrics.watch(
        Watched(
            replicas=lambda: {"echo": 2},
            outstanding=lambda: {("echo", "worker0"): 1, ("gone", "worker0"): 1, ("echo", "gone"): 1},
            routed=lambda: {("echo", "worker0"): 3, ("gone", "worker0"): 9, ("echo", "gone"): 9},
        )
    )
    gateway.metrics.finished("echo", 0, "worker0", 0.1, 0.1)
    before = gateway.lines("gateway_")
    for index in range(200):
        name = f"m{index}"
        gateway.metrics.keep(models=["echo", name], workers=["worker0", name])
        gateway.metrics.finished(name, 0, name, 0.1, 0.1)
        assert gateway.value("gateway_requests_total", model=name, code="OK") == 1
        gateway.metrics.keep(models=["echo"], workers=["worker0"])
        assert gateway.value("gateway_requests_total", model=name, code="OK") is None
        # One that was in flight when its model left.
        gateway.metrics.finished(name, 0, name, 0.1, 0.1)

    gateway.metrics.finished("echo", 0, "worker0", 0.1, 0.1)
    assert gateway.value("gateway_requests_total", model="echo", code="OK") == 2
    assert gateway.value("gateway_requests_total", model="", code="OK") == 200
    names = {line.rpartition(" ")[0] for line in gateway.lines("gateway_") if 'model=""' not in line}
    assert names == {line.rpartition(" ")[0] for line in before}
    assert gateway.value("gateway_replica_routed_total", model="echo", worker="worker0") == 3
    assert not [line for line in before if "gone" in line]


def test_states_are_read_when_the_page_is_asked_for() -> None:
    gateway = Gateway()
    ready = {"worker0": True, "worker1": False}
    gateway.metrics.watch(
        Watched(
            basis=lambda: "items",
            work=lambda: {"worker0": 2.5},
            ready=lambda: ready,
            replicas=lambda: {"echo": 2, "slow": 0},
            outstanding=lambda: {("echo", "worker0"): 4},
            table_size=lambda: 2,
            requests=lambda: 5,
            connections=lambda: 3,
        )
    )
    gateway.metrics.shed("full")
    gateway.metrics.shed("full")
    gateway.metrics.failover("connect")
    gateway.metrics.pages_came({"worker0": True, "worker1": False})

    assert gateway.value("gateway_worker_ready", worker="worker1") == 0
    ready["worker1"] = True
    assert gateway.value("gateway_worker_ready", worker="worker1") == 1
    assert gateway.value("gateway_worker_inflight_work", worker="worker0", basis="items") == 2.5
    assert gateway.value("gateway_model_replicas", model="slow") == 0
    assert gateway.value("gateway_replica_outstanding", model="echo", worker="worker0") == 4
    assert gateway.value("gateway_routing_table_size") == 2
    assert gateway.value("gateway_inflight_requests") == 5
    assert gateway.value("gateway_connections") == 3
    assert gateway.value("gateway_requests_shed_total", reason="full") == 2
    assert gateway.value("gateway_failovers_total", reason="connect") == 1
    assert gateway.value("gateway_worker_metrics_up", worker="worker0") == 1
    assert gateway.value("gateway_worker_metrics_up", worker="worker1") == 0
    assert gateway.value("gateway_info", version="1", mode="round_robin") == 1
    assert gateway.value("process_resident_memory_bytes")


def test_the_page_of_the_gateway_alone_is_prometheus_clients() -> None:
    gateway = Gateway()
    gateway.metrics.finished("echo", 0, "worker1", 0.2, 0.1)
    families = {family.name: family for family in own_families(gateway.metrics.collect())}

    ours = "".join(render(families, openmetrics=False)).splitlines()
    theirs = generate_latest(gateway.metrics).decode().splitlines()

    assert [line.replace(".0", "") for line in ours] == [line.replace(".0", "") for line in theirs]
