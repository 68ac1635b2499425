"""Prometheus series of the placement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from reactant_core.packing.packer import Packer
from reactant_gateway.router import Router


@final
class PackingMetrics:
    """Collected on the event loop. Outside of `lpt_packing` only the counter has samples."""

    def __init__(
        self,
        registry: CollectorRegistry,
        packer: Packer,
        router: Router,
        served: Callable[[], Collection[str]],
    ) -> None:
        """Registers itself.

        Args:
            registry: of the page.
            packer: whose placement.
            router: knows the models.
            served: models that may have series.
        """
        self._packer = packer
        self._router = router
        self._served = served
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        repacks = CounterMetricFamily(
            "gateway_repacks",
            "Placements put in force (lpt_packing), by what brought them.",
            labels=["trigger"],
        )
        for trigger, count in self._packer.repacks.items():
            repacks.add_metric([trigger], count)
        yield repacks
        weight = GaugeMetricFamily(
            "gateway_placement_weight",
            "The model's share of the demand of a worker that it is placed on, as of the last placement.",
            labels=["model", "worker"],
        )
        quantum = GaugeMetricFamily(
            "gateway_model_fill_quantum",
            "Items of the model that are sent to one replica before the next is filled.",
            labels=["model"],
        )
        utilization = GaugeMetricFamily(
            "gateway_model_utilization",
            "Measured demand of the model, device-seconds per second over all its replicas.",
            labels=["model"],
        )
        planner = self._packer.planner
        if planner is not None:
            table = self._router.table
            served, routes, workers = self._served(), table.routes, table.workers
            if planner.last is not None:
                for (model, worker), share in planner.last.plan.weights.items():
                    if model in served and worker in workers:
                        weight.add_metric([model, worker], share)
            demand = planner.demand()
            for model in served:
                if model in routes:
                    quantum.add_metric([model], planner.packed.quantum(model, routes[model].max_batch_size))
                utilization.add_metric([model], demand.get(model, 0.0))
        yield from (weight, quantum, utilization)
