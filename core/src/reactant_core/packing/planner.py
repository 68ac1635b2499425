"""One stay in `lpt_packing`: what is measured, when to place anew, what is in force. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.packing import catalogue
from reactant_policy.placement import engine
from reactant_policy.placement.membership import Fleet, Membership
from reactant_policy.placement.model import Homes, Plan
from reactant_policy.placement.packing import Draft, Packing, Repack, Trigger
from reactant_policy.routing.packed import Packed
from reactant_policy.routing.table import RoutingTable
from reactant_policy.routing.work import Totals

# Planning takes at most this share of the time; a fleet of hundreds spends 300 s of device time in one.
_PLANNING_SHARE: Final = 0.1


@final
@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that is not in force.

    Attributes:
        draft: what it was made of.
        plan: the placement.
        fleet: what it was made for.
    """

    draft: Draft
    plan: Plan
    fleet: Fleet


@final
class Planner:
    """Measures and decides; whoever holds it calls one method at a time, `propose` perhaps in a thread.

    Attributes:
        packed: the rule that routes by the homes in force.
        last: the last placement put in force; None before the first.
        placed_at: when that was, on the caller's clock.
    """

    __slots__ = (
        "_fleet",
        "_held_until",
        "_members",
        "_membership",
        "_packing",
        "_reader",
        "_seen",
        "last",
        "packed",
        "placed_at",
    )

    def __init__(self, config: SchedulingConfig) -> None:
        self._packing = Packing(catalogue.knobs(config))
        self.packed = Packed(
            catalogue.default_fill(config), catalogue.fills(config), policy=config.routing_policy
        )
        self._membership = Membership()
        self._reader = catalogue.FleetReader()
        self._fleet = Fleet()
        self._seen: Mapping[str, Mapping[str, Totals]] = {}
        self._members: frozenset[str] = frozenset()
        self._held_until = 0.0
        self.last: Repack | None = None
        self.placed_at = 0.0

    def follow(self, config: SchedulingConfig) -> None:
        """Takes over other settings; the homes stay until the next placement."""
        self._packing.follow(catalogue.knobs(config))
        self.packed.follow(
            catalogue.default_fill(config), catalogue.fills(config), policy=config.routing_policy
        )

    def look(self, table: RoutingTable) -> Fleet:
        """The fleet in `table`."""
        self._fleet = self._reader.read(table)
        return self._fleet

    def unread(self, totals: Mapping[str, Mapping[str, Totals]]) -> Mapping[str, Mapping[str, Totals]]:
        """Of the readings those that were not there at the last call."""
        seen = self._seen
        new = {worker: read for worker, read in totals.items() if seen.get(worker) is not read}
        self._seen = dict(totals)
        return new

    def observe(
        self, now: float, arrivals: Mapping[str, int], totals: Mapping[str, Mapping[str, Totals]]
    ) -> None:
        """Takes in counters: those of arrivals, and those of the workers that have been read anew."""
        self._packing.observe(now, arrivals, totals)

    def due(self, now: float) -> Trigger | None:
        """Why to place the fleet of the last `look` anew; None: there is no reason."""
        fleet = self._fleet
        if not fleet.workers:
            return None
        if self.last is None:
            return "start"
        if self._membership.due(now, fleet):
            return "membership"
        if self._membership.in_doubt or now < self._held_until:
            return None
        # The members of the last placement: who came and went since is told by `Membership`.
        return self._packing.due(now, self._members)

    def propose(
        self, now: float, table: RoutingTable, fleet: Fleet, config: SchedulingConfig, trigger: Trigger
    ) -> Proposal:
        """Makes a plan, up to a second for 10,000 models on 100 workers; changes nothing."""
        models = catalogue.placeables(table, fleet, config)
        draft = self._packing.draft(now, models, catalogue.rooms(table, fleet), trigger)
        return Proposal(draft, engine.plan(draft.models, draft.workers, draft.previous, draft.knobs), fleet)

    def adopt(self, proposal: Proposal, now: float) -> Repack:
        """Puts a plan in force; routing follows it when this returns."""
        repack = self._packing.adopt(proposal.draft, proposal.plan)
        self.packed.assign(repack.plan.homes)
        self._membership.placed(proposal.fleet)
        self._members = proposal.fleet.workers
        self._held_until = now + (now - proposal.draft.drafted) / _PLANNING_SHARE
        self.last, self.placed_at = repack, now
        return repack

    @property
    def homes(self) -> Homes:
        """The placement in force."""
        return self._packing.homes

    def demand(self) -> Mapping[str, float]:
        """Device-seconds per second, by model."""
        return self._packing.meter.demand()

    def compute_seconds_left(self) -> float:
        """Device time of the fleet until the next placement that nothing else brings about."""
        return self._packing.compute_seconds_left
