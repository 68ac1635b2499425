"""The gateway in virtual time: the real rules of routing and placement, fed as a gateway feeds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import final

from reactant_policy.placement.engine import plan
from reactant_policy.placement.model import NO_HOMES, Homes, Knobs, Plan, WorkerRoom
from reactant_policy.placement.packing import Draft, Packing, PackingKnobs, Placeable, Trigger
from reactant_policy.routing.packed import Fill, Packed
from reactant_policy.routing.spread import SPREADS, Spread
from reactant_policy.routing.work import work_of
from reactant_policy.simulate.costs import MeasuredRoutes
from reactant_policy.simulate.fleet import Fleet
from reactant_policy.simulate.policies import Policy
from reactant_policy.simulate.result import RepackResult
from reactant_policy.simulate.worker import SimulatedWorker

_PLANNING_SHARE = 0.1
"""Planning takes at most this share of the time, as in a gateway."""


@final
class SimulatedGateway:
    """Chooses a worker for every request, counts what is in flight, looks at counters, and repacks.

    Attributes:
        measures: `probe` is to be called, at the start and then from time to time.
        repacks: those so far.
    """

    def __init__(self, policy: Policy, fleet: Fleet) -> None:
        self.repacks: list[RepackResult] = []
        self._fleet = fleet
        self._placer = _Placer(policy, fleet) if policy.packs else None
        self._spread: Spread = SPREADS[policy.mode]() if self._placer is None else self._placer.packed
        # As in the gateway: a rule that does not look at the load has nothing to count.
        self._basis = policy.work_basis if self._spread.looks_at_load else "requests"
        self._routes = MeasuredRoutes(fleet)
        self._load = dict.fromkeys(fleet.workers, 0.0)
        self._outstanding = dict.fromkeys(fleet.workers, 0)
        self._in_flight: dict[int, tuple[str, str, int, float]] = {}
        self.measures = self._basis == "compute" or self._placer is not None

    @property
    def homes(self) -> Homes:
        """Workers by model, as placed; empty without a placement."""
        return NO_HOMES if self._placer is None else self._placer.packing.homes

    def route(self, ticket: int, model: str, items: int) -> str:
        """The worker for a request, which is in flight there until it is settled."""
        route = self._routes.routes[model]
        mean = self._routes.mean_seconds
        item_work = work_of(self._basis, route, 1, mean)
        worker = self._spread.choose(model, route.candidates, self._load, route.max_batch_size, item_work)
        work = work_of(self._basis, route, items, mean)
        self._load[worker] += work
        self._outstanding[worker] += 1
        self._spread.began(model, worker, items)
        self._in_flight[ticket] = (worker, model, items, work)
        if self._placer is not None:
            self._placer.arrivals[model] += items
        return worker

    def settled(self, ticket: int) -> None:
        """A request was answered or given up."""
        worker, model, items, work = self._in_flight.pop(ticket)
        left = self._outstanding[worker] - 1
        self._outstanding[worker] = left
        # An idle worker has exactly nothing to do, whatever the rounding of what it had.
        self._load[worker] = self._load[worker] - work if left else 0.0
        self._spread.ended(model, worker, items)

    def probe(self, now: float, workers: Mapping[str, SimulatedWorker]) -> bool:
        """Looks at the counters; True when a new placement was decided, which `place` puts in force."""
        if self._basis == "compute":
            self._routes.read({name: worker.totals for name, worker in workers.items()})
        return self._placer is not None and self._placer.look(now, workers)

    def want(self) -> None:
        """Someone asks for a placement: the next `probe` decides on it."""
        if self._placer is not None:
            self._placer.wanted = True

    def place(self) -> None:
        """Puts the placement that was decided last in force."""
        if self._placer is not None:
            self.repacks.append(self._placer.adopt())


@final
class _Placer:
    """What `lpt_packing` has beside routing."""

    def __init__(self, policy: Policy, fleet: Fleet) -> None:
        knobs = PackingKnobs(
            policy.rebalance_compute_seconds,
            policy.first_rebalance_compute_seconds,
            policy.demand_halflife_compute_seconds,
            Knobs(hysteresis=policy.hysteresis),
        )
        self.packing = Packing(knobs)
        self.packed = Packed(Fill(policy.fill_mode, policy.fill_factor), policy=policy.routing_policy)
        self.arrivals: Counter[str] = Counter()
        self._fleet = fleet
        self._models = [
            Placeable(name, model.weight_bytes, fleet.workers, replicas=policy.replicas)
            for name, model in sorted(fleet.models.items())
        ]
        self._rooms = [WorkerRoom(name, fleet.weight_budget_bytes) for name in fleet.workers]
        self.wanted = False
        self._started = False
        self._held_until = 0.0
        self._drafted: tuple[Draft, Plan] | None = None

    def look(self, now: float, workers: Mapping[str, SimulatedWorker]) -> bool:
        self.packing.observe(now, self.arrivals, {name: dict(w.totals) for name, w in workers.items()})
        trigger: Trigger | None = "start"
        if self._started:
            trigger = self.packing.due(now, self._fleet.workers, self._fleet.models)
        if now < self._held_until:
            trigger = None
        if self.wanted:
            trigger = "request"
        if trigger is None or self._drafted is not None:
            return False
        self._started = True
        self.wanted = False
        self._held_until = now + self._fleet.planning_seconds * (1 + 1 / _PLANNING_SHARE)
        draft = self.packing.draft(now, self._models, self._rooms, trigger)
        self._drafted = draft, plan(draft.models, draft.workers, draft.previous, draft.knobs)
        return True

    def adopt(self) -> RepackResult:
        assert self._drafted is not None
        draft, made = self._drafted
        self._drafted = None
        repack = self.packing.adopt(draft, made)
        self.packed.assign(self.packing.homes)
        return RepackResult(
            at=draft.drafted,
            trigger=repack.trigger,
            placed=made.placed,
            moved=len(made.moves),
            held=made.held,
            bytes_moved=made.bytes_moved,
            imbalance_before=made.imbalance_before,
            imbalance_after=made.imbalance_after,
        )
