"""The gateway's Prometheus series."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

import grpc
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

# Those of the worker, so that the two can be laid over each other.
_BOUNDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_LE: Final = (*map(str, _BOUNDS), "+Inf")

_CODES: Final = tuple(code.name for code in sorted(grpc.StatusCode, key=lambda code: code.value[0]))
_UNKNOWN: Final = _CODES.index("UNKNOWN")

NO_MODEL: Final = ""
"""Label of requests for a model that is not in the routing table: made-up names must never become series."""


def _no_numbers() -> Mapping[str, int]:
    return {}


def _no_pairs() -> Mapping[tuple[str, str], int]:
    return {}


def _zero() -> int:
    return 0


def _requests() -> str:
    return "requests"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """State of other parts, read when the page is asked for. Called on the event loop.

    Attributes:
        basis: what work is counted in: requests, items or compute.
        work: work in flight by worker, in that basis.
        ready: by worker, whether requests may be sent there.
        replicas: by model, the workers that have it READY.
        outstanding: requests in flight by (model, worker).
        routed: requests ever sent by (model, worker).
        table_size: models in the routing table.
        requests: requests in flight.
        connections: of clients.
    """

    basis: Callable[[], str] = _requests
    work: Callable[[], Mapping[str, float]] = _no_numbers
    ready: Callable[[], Mapping[str, bool | int]] = _no_numbers
    replicas: Callable[[], Mapping[str, int]] = _no_numbers
    outstanding: Callable[[], Mapping[tuple[str, str], int]] = _no_pairs
    routed: Callable[[], Mapping[tuple[str, str], int]] = _no_pairs
    table_size: Callable[[], int] = _zero
    requests: Callable[[], int] = _zero
    connections: Callable[[], int] = _zero


@final
class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(_LE)
        self.total = 0.0


@final
class _Model:
    __slots__ = ("codes", "latency")

    def __init__(self) -> None:
        self.codes = [0] * len(_CODES)
        self.latency = _Histogram()


@final
class GatewayMetrics:
    """Counts requests; not thread-safe, everything is called on the event loop.

    Models and workers have series from `keep` on until they leave; others never have any.
    """

    def __init__(self, registry: CollectorRegistry, *, info: Mapping[str, str] | None = None) -> None:
        self._info = dict(info or {})
        self._watched = Watched()
        self._nobody = _Model()
        self._models: dict[str, _Model] = {}
        self._workers: dict[str, _Histogram] = {}
        self._shed: dict[str, int] = {}
        self._failovers: dict[str, int] = {}
        self._pages: Mapping[str, bool] = {}
        ProcessCollector(registry=registry)
        registry.register(self)

    def watch(self, watched: Watched) -> None:
        """Where the gauges come from; called once, when those parts exist."""
        self._watched = watched

    def keep(self, *, models: Iterable[str], workers: Iterable[str]) -> None:
        """What the routing table has now; whatever left loses its series, its requests count as `NO_MODEL`.

        Call it whenever the table is swapped.
        """
        self._models = {name: self._models.get(name) or _Model() for name in models}
        self._workers = {name: self._workers.get(name) or _Histogram() for name in workers}

    def finished(
        self, model: str, code: int, worker: str | None, seconds: float, worker_seconds: float | None
    ) -> None:
        """Counts an answer to a client. Hot path.

        Args:
            model: as the client wrote it.
            code: gRPC status, 0 to 16; any other counts as UNKNOWN.
            worker: who answered; None when nobody was asked.
            seconds: from the request's first byte to the answer's last; counted when the code is OK.
            worker_seconds: the part spent waiting for `worker`.
        """
        series = self._models.get(model) or self._nobody
        if 0 <= code <= 16:
            series.codes[code] += 1
        else:
            series.codes[_UNKNOWN] += 1
        if code == 0:
            latency = series.latency
            latency.counts[bisect_left(_BOUNDS, seconds)] += 1
            latency.total += seconds
        if worker_seconds is not None and worker is not None:
            histogram = self._workers.get(worker)
            if histogram is not None:
                histogram.counts[bisect_left(_BOUNDS, worker_seconds)] += 1
                histogram.total += worker_seconds

    def shed(self, reason: str) -> None:
        """Counts a request refused by the gateway itself; `reason` is one of a fixed few."""
        self._shed[reason] = self._shed.get(reason, 0) + 1

    def failover(self, reason: str) -> None:
        """Counts an attempt on a further replica; `reason` is one of a fixed few."""
        self._failovers[reason] = self._failovers.get(reason, 0) + 1

    def pages_came(self, pages: Mapping[str, bool]) -> None:
        """By worker, whether its metrics page came, for this scrape."""
        self._pages = dict(pages)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        yield from self._requests()
        yield _counter(
            "gateway_requests_shed", "Requests refused here, not by a worker.", "reason", self._shed
        )
        yield _counter(
            "gateway_failovers", "Attempts on a further replica, by what failed.", "reason", self._failovers
        )
        yield from self._states()
        yield InfoMetricFamily("gateway", "What this gateway is.", value=self._info)

    def _requests(self) -> Iterator[Metric]:
        models = {NO_MODEL: self._nobody, **self._models}
        requests = CounterMetricFamily(
            "gateway_requests", "Requests answered, by model and gRPC status.", labels=["model", "code"]
        )
        latency = HistogramMetricFamily(
            "gateway_request_latency_seconds",
            "From a request's first byte to its answer's last, successful requests.",
            labels=["model"],
        )
        for name, series in models.items():
            for code, count in zip(_CODES, series.codes, strict=True):
                if count:
                    requests.add_metric([name, code], count)
            _observe(latency, name, series.latency)
        yield requests
        yield latency
        waited = HistogramMetricFamily(
            "gateway_worker_latency_seconds",
            "From a request handed to a worker to the worker's answer.",
            labels=["worker"],
        )
        for name, histogram in self._workers.items():
            _observe(waited, name, histogram)
        yield waited

    def _states(self) -> Iterator[Metric]:
        watched = self._watched
        yield _gauge(
            "gateway_worker_ready", "1 while requests may go to the worker.", ["worker"], watched.ready()
        )
        yield _gauge(
            "gateway_worker_metrics_up",
            "1 when the worker's metrics page is part of this one.",
            ["worker"],
            self._pages,
        )
        work = GaugeMetricFamily(
            "gateway_worker_inflight_work",
            "Work sent to the worker and not answered, in requests, items or seconds of compute.",
            labels=["worker", "basis"],
        )
        basis = watched.basis()
        for worker, amount in watched.work().items():
            work.add_metric([worker, basis], amount)
        yield work
        yield _gauge(
            "gateway_model_replicas", "Workers that have the model ready.", ["model"], watched.replicas()
        )
        labels = ["model", "worker"]
        outstanding = GaugeMetricFamily(
            "gateway_replica_outstanding", "Requests sent to the replica and not answered.", labels=labels
        )
        routed = CounterMetricFamily(
            "gateway_replica_routed", "Requests sent to the replica, attempts included.", labels=labels
        )
        for family, counts in ((outstanding, watched.outstanding()), (routed, watched.routed())):
            for (model, worker), count in counts.items():
                if model in self._models and worker in self._workers:
                    family.add_metric([model, worker], count)
        yield outstanding
        yield routed
        yield GaugeMetricFamily(
            "gateway_routing_table_size", "Models in the routing table.", value=watched.table_size()
        )
        yield GaugeMetricFamily(
            "gateway_inflight_requests", "Requests accepted and not answered.", value=watched.requests()
        )
        yield GaugeMetricFamily("gateway_connections", "Connections of clients.", value=watched.connections())


def _observe(family: HistogramMetricFamily, label: str, histogram: _Histogram) -> None:
    if not any(histogram.counts):
        return
    buckets, running = [], 0
    for bound, count in zip(_LE, histogram.counts, strict=True):
        running += count
        buckets.append((bound, float(running)))
    family.add_metric([label], buckets, histogram.total)


def _counter(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _gauge(name: str, text: str, labels: list[str], values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for value, number in values.items():
        family.add_metric([value], float(number))
    return family
