"""When to place anew, and the placement in force."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, final

from reactant_policy.placement.demand import DemandMeter
from reactant_policy.placement.engine import plan
from reactant_policy.placement.model import NO_HOMES, Homes, Knobs, ModelDemand, Plan, WorkerRoom
from reactant_policy.routing.work import Totals

Trigger: TypeAlias = Literal["start", "first", "compute", "membership", "request"]

_HOLD_SECONDS: Final = 2.0
_LONGEST_HOLD_SECONDS: Final = 64.0


@final
@dataclass(frozen=True, slots=True)
class PackingKnobs:
    """When and how to place; ValueError names every number that is not finite and more than 0.

    Attributes:
        rebalance_compute_seconds: device time of the fleet from one repack to the next.
        first_rebalance_compute_seconds: device time of the fleet until the first repack that knows demand.
        halflife_compute_seconds: memory of the measured demand, in device time of the fleet.
        placement: how a placement is chosen.
    """

    rebalance_compute_seconds: float = 300.0
    first_rebalance_compute_seconds: float = 60.0
    halflife_compute_seconds: float = 300.0
    placement: Knobs = field(default_factory=Knobs)

    def __post_init__(self) -> None:
        seconds = {
            "rebalance_compute_seconds": self.rebalance_compute_seconds,
            "first_rebalance_compute_seconds": self.first_rebalance_compute_seconds,
            "halflife_compute_seconds": self.halflife_compute_seconds,
        }
        wrong = [f"{name} is {value}" for name, value in seconds.items() if not 0.0 < value < math.inf]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: seconds of more than 0 are accepted")


@final
@dataclass(frozen=True, slots=True)
class Placeable:
    """A model that wants a place, but for its demand; attributes as of `ModelDemand`."""

    name: str
    weight_bytes: int
    eligible: tuple[str, ...]
    pinned: tuple[str, ...] = ()
    replicas: int | None = 1


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """All that a plan depends on, so that another thread or process can make it while the host goes on.

    The plan is `engine.plan(draft.models, draft.workers, draft.previous, draft.knobs)`.

    Attributes:
        models: with their demand.
        workers: those that models can be placed on.
        previous: the homes in force.
        knobs: how to choose.
        trigger: why.
        compute_seconds: device time of the fleet since the last repack.
        wall_seconds: since the last repack; 0 for the first.
        consumed: device time of the fleet so far.
        drafted: when, on the caller's monotonic clock.
    """

    models: tuple[ModelDemand, ...]
    workers: tuple[WorkerRoom, ...]
    previous: Homes
    knobs: Knobs
    trigger: Trigger
    compute_seconds: float
    wall_seconds: float
    consumed: float
    drafted: float


@final
@dataclass(frozen=True, slots=True)
class Repack:
    """A placement that came into force.

    Attributes:
        plan: the placement.
        trigger: why it was made.
        compute_seconds: device time of the fleet since the repack before.
        wall_seconds: since the repack before; 0 for the first.
    """

    plan: Plan
    trigger: Trigger
    compute_seconds: float
    wall_seconds: float


@final
class Packing:
    """State of whoever hosts the placement: a gateway alone, the registry's leader, the simulator.

    Attributes:
        knobs: when and how to place.
        meter: what was measured.
        homes: the placement in force; replaced by a repack, never changed.
    """

    def __init__(self, knobs: PackingKnobs) -> None:
        self.knobs = knobs
        self.meter = DemandMeter(knobs.halflife_compute_seconds)
        self.homes: Homes = NO_HOMES
        self._last: Draft | None = None
        self._knows_demand = False
        self._members: frozenset[str] = frozenset()
        self._models: frozenset[str] = frozenset()
        self._hold_seconds = _HOLD_SECONDS
        self._held_until = -math.inf

    @property
    def consumed(self) -> float:
        """Device time that the fleet has spent, seconds."""
        return self.meter.consumed

    @property
    def compute_seconds_left(self) -> float:
        """Device time that the fleet spends until the next repack is due for that; not below 0."""
        since = 0.0 if self._last is None else self._last.consumed
        if self._knows_demand:
            return max(0.0, since + self.knobs.rebalance_compute_seconds - self.consumed)
        return max(0.0, self.knobs.first_rebalance_compute_seconds - self.consumed)

    def follow(self, knobs: PackingKnobs) -> None:
        """Other knobs from now on; what was measured stays."""
        if knobs.halflife_compute_seconds != self.knobs.halflife_compute_seconds:
            self.meter.follow(knobs.halflife_compute_seconds)
        self.knobs = knobs

    def observe(
        self, now: float, arrivals: Mapping[str, int], totals: Mapping[str, Mapping[str, Totals]]
    ) -> None:
        """Takes in readings of the counters: see `DemandMeter.observe`."""
        self.meter.observe(now, arrivals, totals)

    def demand(self) -> Mapping[str, float]:
        """Device-seconds per second by model: see `DemandMeter.demand`."""
        return self.meter.demand()

    def due(self, now: float, members: Collection[str], models: Collection[str] = ()) -> Trigger | None:
        """Why to repack now, or None; before the first repack, which the host asks for, there is no reason.

        "first" and "compute" by the device time that the fleet spent, whether demand changed or not.
        "membership" when workers or models differ from those of the last repack: the first time at once, then
        held off for 2 s, and for twice as long each time that the next comes soon after, up to 64 s. One
        worker that comes and goes makes no storm, and one that is back in time makes no repack.

        Args:
            now: seconds on the caller's monotonic clock.
            members: workers that models can be placed on.
            models: those that can be placed; one that the last repack did not see is a change.
        """
        if self._last is None:
            return None
        if self.compute_seconds_left <= 0.0:
            return "compute" if self._knows_demand else "first"
        changed = self._members != frozenset(members) or not self._models.issuperset(models)
        return "membership" if changed and now >= self._held_until else None

    def draft(
        self, now: float, models: Sequence[Placeable], workers: Sequence[WorkerRoom], trigger: Trigger
    ) -> Draft:
        """What to plan with; it changes nothing. ValueError names a number that cannot be."""
        demand = self.meter.demand()
        last = self._last
        return Draft(
            models=tuple(
                ModelDemand(
                    model.name,
                    demand.get(model.name, 0.0),
                    model.weight_bytes,
                    model.eligible,
                    model.pinned,
                    model.replicas,
                )
                for model in models
            ),
            workers=tuple(workers),
            previous=self.homes,
            knobs=self.knobs.placement,
            trigger=trigger,
            compute_seconds=self.consumed - (0.0 if last is None else last.consumed),
            wall_seconds=0.0 if last is None else now - last.drafted,
            consumed=self.consumed,
            drafted=now,
        )

    def adopt(self, draft: Draft, made: Plan) -> Repack:
        """Puts a plan made of `draft` into force."""
        if draft.trigger == "membership":
            soon = draft.drafted <= self._held_until + self._hold_seconds
            self._hold_seconds = (
                min(2.0 * self._hold_seconds, _LONGEST_HOLD_SECONDS) if soon else _HOLD_SECONDS
            )
            self._held_until = draft.drafted + self._hold_seconds
        self.homes = made.homes
        self._last = draft
        self._knows_demand |= draft.consumed >= self.knobs.first_rebalance_compute_seconds
        self._members = frozenset(worker.name for worker in draft.workers)
        self._models = frozenset(model.name for model in draft.models)
        return Repack(made, draft.trigger, draft.compute_seconds, draft.wall_seconds)

    def repack(
        self, now: float, models: Sequence[Placeable], workers: Sequence[WorkerRoom], trigger: Trigger
    ) -> Repack:
        """`draft`, `engine.plan` and `adopt` in one: up to a second for 10,000 models on 100 workers."""
        draft = self.draft(now, models, workers, trigger)
        return self.adopt(draft, plan(draft.models, draft.workers, draft.previous, draft.knobs))
