"""What the host of the scheduling sees of its fleet, and tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from reactant_policy.routing.spread import Spread
from reactant_policy.routing.table import RoutingTable


class Board(Protocol):
    """Read on the event loop; a gateway's router is one."""

    @property
    def table(self) -> RoutingTable:
        """The fleet as it is now; another object when something of it changed."""
        ...

    @property
    def arrivals(self) -> Mapping[str, int]:
        """Items that came so far, by model; a count may begin anew."""
        ...

    @property
    def replica_outstanding(self) -> Mapping[tuple[str, str], int]:
        """Requests in flight, by (worker, model)."""
        ...

    def outstanding(self, worker: str) -> int:
        """Requests in flight on a worker."""
        ...

    def follow(self, spread: Spread, basis: str) -> None:
        """Requests are to be spread by this rule from now on; one that spreads none passes it over."""
        ...
