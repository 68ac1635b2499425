"""Which worker gets a request, and what every worker has in flight. Lives on the event loop; no locks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import final

from reactant_policy.routing.packed import Packed
from reactant_policy.routing.spread import Spread
from reactant_policy.routing.table import EMPTY_TABLE, Route, RoutingTable
from reactant_policy.routing.work import WORK_BASES, items_of, work_of


@final
class Router:
    """The routing table in force, the rule that spreads requests, and the load it looks at.

    Attributes:
        load: work in flight by worker, in units of the basis.
        on_swap: called with each table after it was put in force.
        routed: attempts begun, by (worker, model).
        replica_outstanding: attempts in flight, by (worker, model).
        arrivals: items that came while the rule in force was told of requests, by model: each request once,
            however often it was tried. A count starts anew with a model that was gone from the table.
        follows_requests: whether the rule in force is told of requests, so that `arrived` is worth calling.
    """

    __slots__ = (
        "_arrivals",
        "_basis",
        "_load",
        "_outstanding",
        "_packed",
        "_replicas",
        "_routed",
        "_routes",
        "_spread",
        "_table",
        "arrivals",
        "follows_requests",
        "load",
        "on_swap",
        "replica_outstanding",
        "routed",
    )

    def __init__(self, spread: Spread, basis: str) -> None:
        """Starts with an empty table.

        Raises:
            ValueError: the basis is not one of `WORK_BASES`.
        """
        self._table = EMPTY_TABLE
        self._routes: Mapping[str, Route] = EMPTY_TABLE.routes
        self._load: dict[str, float] = {}
        self._outstanding: dict[str, int] = {}
        self._replicas: dict[tuple[str, str], int] = {}
        self._routed: dict[tuple[str, str], int] = {}
        self._arrivals: dict[str, int] = {}
        self._packed: Packed | None = None
        self.load: Mapping[str, float] = MappingProxyType(self._load)
        self.on_swap: list[Callable[[RoutingTable], None]] = []
        self.follow(spread, basis)
        self.routed: Mapping[tuple[str, str], int] = MappingProxyType(self._routed)
        self.replica_outstanding: Mapping[tuple[str, str], int] = MappingProxyType(self._replicas)
        self.arrivals: Mapping[str, int] = MappingProxyType(self._arrivals)

    def follow(self, spread: Spread, basis: str) -> None:
        """Spreads by another rule from now on; what is in flight keeps the weight it was given.

        A rule that does not look at the load gets `requests` as its basis, which costs nothing to count. One
        that is told of requests takes over what such a one before it has in flight; it is told of no request
        that another rule has sent.

        Raises:
            ValueError: the basis is not one of `WORK_BASES`.
        """
        if basis not in WORK_BASES:
            raise ValueError(f"work basis {basis!r}: accepted are {', '.join(WORK_BASES)}")
        self._spread = spread
        self._basis = basis if spread.looks_at_load else "requests"
        self.follows_requests = spread.follows_requests
        if isinstance(spread, Packed):
            if self._packed is not None and self._packed is not spread:
                spread.adopt(self._packed)
            # It stays when another rule comes: what it has sent still ends.
            self._packed = spread

    @property
    def table(self) -> RoutingTable:
        """The table in force."""
        return self._table

    @property
    def basis(self) -> str:
        """One of `WORK_BASES`."""
        return self._basis

    @property
    def counts_items(self) -> bool:
        """Whether the batch of a request matters, so that it is worth looking for."""
        return self.follows_requests or self._basis != "requests"

    def swap(self, table: RoutingTable) -> None:
        """Puts `table` in force for every request from now on, and drops counters of what it has not."""
        before = self._table
        self._table = table
        self._routes = table.routes
        if before.workers.keys() != table.workers.keys() or before.routes.keys() != table.routes.keys():
            self._settle_counters(table)
        for tell in self.on_swap:
            tell(table)

    def _settle_counters(self, table: RoutingTable) -> None:
        for worker in table.workers:
            self._load.setdefault(worker, 0.0)
            self._outstanding.setdefault(worker, 0)
        # What is still in flight keeps its count; a later swap drops it.
        for worker in [w for w, count in self._outstanding.items() if not count and w not in table.workers]:
            del self._load[worker], self._outstanding[worker]
        for key in [k for k in self._routed if not self._known(k)]:
            del self._routed[key]
        for key in [k for k, count in self._replicas.items() if not count and not self._known(k)]:
            del self._replicas[key]
        for model in [m for m in self._arrivals if m not in table.routes]:
            del self._arrivals[model]
        if self._packed is not None:
            self._packed.retain(table.routes)

    def _known(self, replica: tuple[str, str]) -> bool:
        return replica[0] in self._table.workers and replica[1] in self._table.routes

    def find(self, model: str) -> Route | None:
        """Where requests for `model` can go; None when no worker knows it."""
        return self._routes.get(model)

    def choose(
        self, route: Route, tried: Collection[str], region_holders: frozenset[str] | None
    ) -> str | None:
        """The worker for an attempt; None when nobody is left.

        Args:
            route: the model's, as `find` gave it; may be of an older table.
            tried: workers that have had the request.
            region_holders: where a request with a shared-memory region must go; None: it has none.
        """
        candidates = route.candidates
        if tried or region_holders is not None:
            candidates = tuple(
                name
                for name in candidates
                if name not in tried and (region_holders is None or name in region_holders)
            )
        if not candidates:
            return None
        if not self.follows_requests:
            return self._spread.choose(route.name, candidates, self._load)
        item_work = work_of(self._basis, route, 1, self._table.mean_seconds)
        return self._spread.choose(route.name, candidates, self._load, route.max_batch_size, item_work)

    def work(self, route: Route, items: int | None) -> float:
        """What a request of `items` items weighs; None where they were not found."""
        return work_of(self._basis, route, items, self._table.mean_seconds)

    def arrived(self, route: Route, items: int | None) -> int:
        """Counts a request in `arrivals`; gives what its attempts count for, 0 when nobody asks.

        Args:
            route: the model's.
            items: the batch that the request states; None where it was not found.
        """
        if not self.follows_requests:
            return 0
        counted = items_of(route, items)
        self._arrivals[route.name] = self._arrivals.get(route.name, 0) + counted
        return counted

    def begin(self, worker: str, model: str, work: float, items: int = 0) -> None:
        """Counts an attempt in; its end is told by `end` with the same arguments, once.

        Args:
            worker: as chosen.
            model: the route's.
            work: of the request, as `work` has it.
            items: of the request, as `arrived` has it.
        """
        key = (worker, model)
        load, outstanding, replicas, routed = self._load, self._outstanding, self._replicas, self._routed
        load[worker] = load.get(worker, 0.0) + work
        outstanding[worker] = outstanding.get(worker, 0) + 1
        replicas[key] = replicas.get(key, 0) + 1
        routed[key] = routed.get(key, 0) + 1
        if items and self._packed is not None:
            self._packed.began(model, worker, items)

    def end(self, worker: str, model: str, work: float, items: int = 0) -> None:
        """Counts an attempt out."""
        left = self._outstanding[worker] - 1
        self._outstanding[worker] = left
        # An idle worker has exactly nothing to do, whatever the rounding of what it had.
        self._load[worker] = self._load[worker] - work if left else 0.0
        self._replicas[worker, model] -= 1
        if items and self._packed is not None:
            self._packed.ended(model, worker, items)

    def outstanding(self, worker: str) -> int:
        """Attempts in flight on `worker`."""
        return self._outstanding.get(worker, 0)
