"""The worker's Prometheus series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from reactant_worker.engine.port import EngineStatistics
from reactant_worker.models.catalog import Entry

_LATENCY_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip

NO_MODEL = ""
"""Label of requests for a model that does not exist: made-up names must never become series."""


@final
class WorkerMetrics:
    """Series that requests write to; everything else is read at scrape time by `StateCollector`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "worker_requests",
            "Requests answered, by model and gRPC status.",
            ["model", "code"],
            registry=registry,
        )
        self._latency = Histogram(
            "worker_request_latency_seconds",
            "From the decoded message to the encoded answer, successful requests.",
            ["model"],
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self._wait = Histogram(
            "worker_queue_wait_seconds",
            "From entering the device queue to dispatch.",
            ["model"],
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self._shed = Counter(
            "worker_requests_shed",
            "Requests refused, dropped or given up by their client.",
            ["reason"],
            registry=registry,
        )
        # labels() costs more than inc(): children are kept.
        self._request_children: dict[tuple[str, str], Counter] = {}
        self._latency_children: dict[str, Histogram] = {}
        self._wait_children: dict[str, Histogram] = {}

    def answered(self, model: str, code: str, seconds: float) -> None:
        """Counts an answer; `code` is a gRPC status name, `model` one that exists or `NO_MODEL`."""
        key = (model, code)
        counter = self._request_children.get(key)
        if counter is None:
            counter = self._request_children[key] = self._requests.labels(model, code)
        counter.inc()
        if code == "OK":
            latency = self._latency_children.get(model)
            if latency is None:
                latency = self._latency_children[model] = self._latency.labels(model)
            latency.observe(seconds)

    def waited(self, model: str, seconds: float) -> None:
        """Records the time a request spent before its dispatch."""
        wait = self._wait_children.get(model)
        if wait is None:
            wait = self._wait_children[model] = self._wait.labels(model)
        wait.observe(seconds)

    def shed(self, reason: str) -> None:
        """Counts a request without an answer; `reason` is full, unavailable, deadline or cancelled."""
        self._shed.labels(reason).inc()

    def forget(self, model: str) -> None:
        """Drops the series of a model that left."""
        for key in [key for key in self._request_children if key[0] == model]:
            del self._request_children[key]
            self._requests.remove(*key)
        for children, family in ((self._latency_children, self._latency), (self._wait_children, self._wait)):
            if children.pop(model, None) is not None:
                family.remove(model)


@final
class StateCollector:
    """Gauges and counters read from the worker's own state when the page is asked for.

    Args:
        entries: every model known.
        totals: dispatches, requests, rows and compute seconds of a model over all its versions.
        queued: requests of a model that wait for a hook thread or for the device.
        extra: families of other parts (admission, device, programs, start-up).
    """

    def __init__(
        self,
        entries: Callable[[], Iterable[Entry]],
        totals: Callable[[Entry], EngineStatistics],
        queued: Callable[[Entry], int],
        extra: Callable[[], Iterable[Metric]],
    ) -> None:
        self._entries = entries
        self._totals = totals
        self._queued = queued
        self._extra = extra

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        depth = GaugeMetricFamily(
            "worker_queue_depth", "Requests waiting for a hook thread or the device.", labels=["model"]
        )
        dispatches = CounterMetricFamily("worker_dispatch", "Program executions.", labels=["model"])
        compute = CounterMetricFamily(
            "worker_compute_seconds", "Device time, transfers included.", labels=["model"]
        )
        served = CounterMetricFamily(
            "worker_requests_served", "Requests executed on the device.", labels=["model"]
        )
        rows = CounterMetricFamily(
            "worker_rows_served", "Rows executed, padding not counted.", labels=["model"]
        )
        largest = GaugeMetricFamily(
            "worker_model_max_batch_size", "Largest compiled batch size.", labels=["model"]
        )
        weight_bytes = GaugeMetricFamily(
            "worker_model_weight_bytes", "Bytes of the weight set.", labels=["model"]
        )
        resident = GaugeMetricFamily(
            "worker_model_resident", "1 while the weights are on the device.", labels=["model"]
        )
        loaded = 0
        for entry in self._entries():
            if entry.model is None:
                continue
            loaded += 1
            name, totals = [entry.name], self._totals(entry)
            depth.add_metric(name, self._queued(entry))
            dispatches.add_metric(name, totals.dispatches)
            compute.add_metric(name, totals.compute_seconds)
            served.add_metric(name, totals.requests)
            rows.add_metric(name, totals.rows)
            largest.add_metric(name, entry.model.largest)
            weight_bytes.add_metric(name, entry.model.weight_bytes)
            resident.add_metric(name, 1)
        yield from (depth, dispatches, compute, served, rows, largest, weight_bytes, resident)
        yield GaugeMetricFamily("worker_models_loaded", "Models that serve.", value=loaded)
        yield GaugeMetricFamily("worker_models_resident", "Models with weights on the device.", value=loaded)
        yield from self._extra()


def info(labels: dict[str, str]) -> Metric:
    """`worker_info` with its labels."""
    return InfoMetricFamily("worker", "What this worker is.", value=labels)
