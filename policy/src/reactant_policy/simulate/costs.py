"""What an item costs, as a gateway learns it from the counters of its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import final

from reactant_policy.routing.table import Route
from reactant_policy.routing.work import Totals, seconds_per_item
from reactant_policy.simulate.fleet import Fleet


@final
class MeasuredRoutes:
    """The route of every model to all workers of a fleet, with the costs measured so far.

    Attributes:
        routes: by model.
        mean_seconds: the mean cost of an item over the models that are measured; 0 when none is.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.mean_seconds = 0.0
        self.routes = {
            name: Route(
                name,
                fleet.workers,
                idempotent=True,
                batch_input="batch",
                max_batch_size=model.max_batch_size,
            )
            for name, model in fleet.models.items()
        }
        self._totals: dict[str, dict[str, Totals]] = {worker: {} for worker in fleet.workers}
        self._costs: dict[str, dict[str, float]] = {}

    def read(self, totals: Mapping[str, Mapping[str, Totals]]) -> None:
        """Takes in the counters by worker and model; the mappings are not kept."""
        changed: set[str] = set()
        for worker, counters in totals.items():
            before = self._totals[worker]
            for model, now in counters.items():
                last = before.get(model)
                if now is last:
                    continue
                costs = self._costs.setdefault(model, {})
                cost = seconds_per_item(last, now, costs.get(worker))
                before[model] = now
                if cost is not None:
                    costs[worker] = cost
                    changed.add(model)
        for model in changed:
            costs = self._costs[model]
            mean = sum(costs.values()) / len(costs)
            self.routes[model] = replace(self.routes[model], seconds_per_item=mean)
        if changed:
            measured = [self.routes[model].seconds_per_item or 0.0 for model in self._costs]
            self.mean_seconds = sum(measured) / len(measured)
