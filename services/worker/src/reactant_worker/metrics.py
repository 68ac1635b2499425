"""The worker's Prometheus series."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import final

from prometheus_client import CollectorRegistry, Counter, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from reactant_worker.engine.port import EngineStatistics
from reactant_worker.models.catalog import Catalog, Entry, ModelState

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
        self._shed = Counter(
            "worker_requests_shed",
            "Requests refused, dropped or given up by their client.",
            ["reason"],
            registry=registry,
        )
        self._answered: dict[tuple[str, str], int] = {}
        self._latency: dict[str, Spread] = {}
        self._wait: dict[str, Spread] = {}
        registry.register(self)

    def answered(self, model: str, code: str, seconds: float) -> None:
        """Counts an answer; `code` is a gRPC status name, `model` one that exists or `NO_MODEL`."""
        key = (model, code)
        self._answered[key] = self._answered.get(key, 0) + 1
        if code == "OK":
            latency = self._latency.get(model)
            if latency is None:
                latency = self._latency[model] = Spread()
            latency.add(seconds)

    def waited(self, model: str, seconds: float) -> None:
        """Records the time a request spent before its dispatch."""
        wait = self._wait.get(model)
        if wait is None:
            wait = self._wait[model] = Spread()
        wait.add(seconds)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        requests = CounterMetricFamily(
            "worker_requests", "Requests answered, by model and gRPC status.", labels=["model", "code"]
        )
        for (model, code), count in list(self._answered.items()):
            requests.add_metric([model, code], count)
        yield requests
        for name, text, spreads in (
            (
                "worker_request_latency_seconds",
                "From the decoded message to the encoded answer, successful requests.",
                self._latency,
            ),
            ("worker_queue_wait_seconds", "From entering the device queue to dispatch.", self._wait),
        ):
            family = HistogramMetricFamily(name, text, labels=["model"])
            for model, spread in list(spreads.items()):
                family.add_metric([model], *spread.buckets())
            yield family

    def shed(self, reason: str) -> None:
        """Counts a request without an answer; `reason` is full, unavailable, deadline or cancelled."""
        self._shed.labels(reason).inc()

    def forget(self, model: str) -> None:
        """Drops the series of a model that left."""
        for key in [key for key in self._answered if key[0] == model]:
            del self._answered[key]
        self._latency.pop(model, None)
        self._wait.pop(model, None)


@final
class Spread:
    """A histogram of seconds. prometheus_client's own takes four times as long to add to: it locks."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(_LATENCY_BUCKETS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Counts one more."""
        self._counts[bisect_left(_LATENCY_BUCKETS, seconds)] += 1
        self._sum += seconds

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by upper bound, and the sum, as `HistogramMetricFamily` takes them."""
        bounds = [*map(str, _LATENCY_BUCKETS), "+Inf"]
        return list(zip(bounds, itertools.accumulate(self._counts), strict=True)), self._sum


@final
class StateCollector:
    """Gauges and counters read from the worker's own state when the page is asked for.

    Args:
        catalog: every model known.
        totals: dispatches, requests, rows and compute seconds of a model over all its versions.
        queued: requests of a model that wait for a hook thread or for the device.
        extra: families of other parts (admission, device, programs, start-up).
    """

    def __init__(
        self,
        catalog: Catalog,
        totals: Callable[[Entry], EngineStatistics],
        queued: Callable[[Entry], int],
        extra: Callable[[], Iterable[Metric]],
    ) -> None:
        self._catalog = catalog
        self._totals = totals
        self._queued = queued
        self._extra = extra

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        depth = GaugeMetricFamily(
            "worker_queue_depth",
            "Requests waiting for a hook thread, the thread of a meta, or the device.",
            labels=["model"],
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
            "worker_model_weight_bytes",
            "Bytes of the weight set; of a meta, of the models that it calls.",
            labels=["model"],
        )
        resident = GaugeMetricFamily(
            "worker_model_resident", "1 while the weights are on the device.", labels=["model"]
        )
        loaded = on_device = 0
        for entry in self._catalog:
            if entry.model is None:
                continue
            loaded += entry.state is ModelState.READY
            name, totals = [entry.name], self._totals(entry)
            depth.add_metric(name, self._queued(entry))
            dispatches.add_metric(name, totals.dispatches)
            compute.add_metric(name, totals.compute_seconds)
            served.add_metric(name, totals.requests)
            rows.add_metric(name, totals.rows)
            weight_bytes.add_metric(name, self._catalog.weight_bytes(entry.model))
            if not entry.model.meta:
                on_device += 1
                largest.add_metric(name, entry.model.largest)
                resident.add_metric(name, 1)
        yield from (depth, dispatches, compute, served, rows, largest, weight_bytes, resident)
        yield GaugeMetricFamily("worker_models_loaded", "Models that serve.", value=loaded)
        yield GaugeMetricFamily(
            "worker_models_resident", "Models with weights on the device.", value=on_device
        )
        yield from self._extra()


def info(labels: dict[str, str]) -> Metric:
    """`worker_info` with its labels."""
    return InfoMetricFamily("worker", "What this worker is.", value=labels)
