"""grpc.health.v1 set from the routing table."""

from __future__ import annotations

from typing import final

from reactant_core.kserve.surface import NOT_LOADED
from reactant_core.rpc.health import HealthServicer
from reactant_policy.routing.table import Route, RoutingTable


@final
class TableHealth:
    """Tells `servicer` what a table says: "" serves while a worker does, a model while one has it READY."""

    def __init__(self, servicer: HealthServicer) -> None:
        self._servicer = servicer
        self._names: set[str] = set()
        self._available = False
        self._draining = False

    def swapped(self, table: RoutingTable) -> None:
        """To be called with every table put in force."""
        self._available = any(worker.available for worker in table.workers.values())
        self._set_whole()
        known = {name for name, route in table.routes.items() if _exists(table, route)}
        for name in known:
            self._servicer.set(name, serving=bool(table.routes[name].candidates))
        for name in self._names - known:
            self._servicer.remove(name)
        self._names = known

    def drain(self) -> None:
        """The server as a whole does not serve from here on, whatever tables come."""
        self._draining = True
        self._set_whole()

    def _set_whole(self) -> None:
        self._servicer.set("", serving=self._available and not self._draining)


def _exists(table: RoutingTable, route: Route) -> bool:
    """Whether a worker has more of the model than a bundle on its disk."""
    if route.candidates:
        return True
    views = (worker.models.get(route.name) for worker in table.workers.values())
    return any(view is not None and not view.reason.startswith(NOT_LOADED) for view in views)
