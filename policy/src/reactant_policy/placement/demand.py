"""How much device time each model asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from reactant_policy.routing.work import UNMEASURED_SECONDS, Totals

_QUANTUM: Final = 2.0**-10
"""Part of the half-life that is gathered before it is folded in: single requests make no rate."""
_LONGEST_SECONDS: Final = 86_400.0
"""A device spends a second a second: no reading lies further above the one before, no item takes longer."""
_SHORTEST_SECONDS: Final = 1e-3
"""Time that has to pass before a rate is made of it."""
_SWEEP_FOLDS: Final = 256
_GONE_SECONDS: Final = 86_400.0
"""A worker not heard of for this long is forgotten."""
_NO_RATE: Final = 2.0**-40
"""Items per second at which a model that nobody lists any more is forgotten."""
_ZERO: Final = Totals(0.0, 0)


@final
@dataclass(slots=True)
class _Model:
    """What is known of a model. Sums fade with the device time of the fleet, and are brought up to date when
    something is added.

    Attributes:
        rate: items per second, faded, times the weight of what was folded in.
        rated: device time of the fleet up to which `rate` is faded.
        seconds: device time, faded.
        rows: items served, faded.
        measured: device time of the fleet up to which `seconds` and `rows` are faded.
        cost: seconds of an item; None before the first measurement.
        arrived: items since the last fold.
    """

    rate: float = 0.0
    rated: float = 0.0
    seconds: float = 0.0
    rows: float = 0.0
    measured: float = 0.0
    cost: float | None = None
    arrived: int = 0


@final
class DemandMeter:
    """Arrival rate times measured cost, both averaged with a half-life in device time of the fleet.

    An average over device time leaves out what no device worked through: after a silence demand is what it
    was before, and a burst counts for as long as it keeps the fleet busy. For a step of C device-seconds and
    T seconds in which n items of a model arrived, with f = 2 ** (-C ÷ half-life),

        rate ← f · rate + (1 − f) · n ÷ T,    weight ← f · weight + (1 − f),

    and the average is rate ÷ weight (the weight corrects the start from 0, as in D. P. Kingma and J. Ba,
    "Adam: a method for stochastic optimization", 2015). Cost is device time ÷ items served, faded alike, over
    all workers.

    Counters are cumulative and come from the network. One that went back is read from zero; a number that
    cannot be is as if it had not been told. The first reading of a worker tells of a time before this one:
    it counts as a first idea of costs, not as device time spent.
    """

    def __init__(self, halflife_compute_seconds: float) -> None:
        self._halflife = halflife_compute_seconds
        self._models: dict[str, _Model] = {}
        self._arrivals: dict[str, int] = {}
        self._listed: Mapping[str, int] = {}
        self._arrived: set[str] = set()
        self._totals: dict[str, dict[str, Totals]] = {}
        self._heard: dict[str, tuple[float, Mapping[str, Totals]]] = {}
        self._consumed = 0.0
        self._folded = 0.0
        self._folds = 0
        self._weight = 0.0
        self._now: float | None = None
        self._elapsed = 0.0

    @property
    def consumed(self) -> float:
        """Device time that the fleet has spent since the first reading, seconds."""
        return self._consumed

    def follow(self, halflife_compute_seconds: float) -> None:
        """Fades at another speed from now on."""
        for known in self._models.values():
            known.rate = self._rate(known)
            known.rated = self._folded
            self._fade_costs(known)
        self._halflife = halflife_compute_seconds

    def observe(
        self, now: float, arrivals: Mapping[str, int], totals: Mapping[str, Mapping[str, Totals]]
    ) -> None:
        """Takes in readings of the counters; work in proportion to what is passed.

        Args:
            now: seconds on the caller's monotonic clock; may be the same several times.
            arrivals: items that arrived so far, by model; one left out has no news, and what arrived before
                the first call does not count.
            totals: counters of the models on each worker; a worker left out has no news.
        """
        first = self._now is None
        self._pass(now)
        self._arrive(arrivals, counts=not first)
        for worker, models in totals.items():
            self._serve(worker, models)
        if self._consumed - self._folded >= _QUANTUM * self._halflife and self._elapsed >= _SHORTEST_SECONDS:
            self._fold()

    def demand(self) -> dict[str, float]:
        """Device-seconds per second by model, finite and not below 0; a new mapping each time.

        A model that was not measured yet costs the mean of those that were.
        """
        kept = self._factor(self._consumed - self._folded)
        weight = kept * self._weight + (1.0 - kept)
        mean = self._mean_cost()
        found: dict[str, float] = {}
        for model, known in self._models.items():
            recent = known.arrived / max(self._elapsed, _SHORTEST_SECONDS)
            rate = (kept * self._rate(known) + (1.0 - kept) * recent) / weight if weight > 0.0 else recent
            found[model] = rate * (mean if known.cost is None else known.cost)
        return found

    def seconds_per_item(self, model: str) -> float | None:
        """Device time of an item; None before the first measurement."""
        known = self._models.get(model)
        return None if known is None else known.cost

    def _pass(self, now: float) -> None:
        if not math.isfinite(now):
            return
        if self._now is not None:
            self._elapsed += max(now - self._now, 0.0)
        self._now = now if self._now is None else max(now, self._now)

    def _arrive(self, arrivals: Mapping[str, int], *, counts: bool) -> None:
        self._listed = arrivals or self._listed
        for model, items in arrivals.items():
            before = self._arrivals.get(model)
            if items == before or not 0 <= items < math.inf:
                continue
            self._arrivals[model] = items
            known = self._models.setdefault(model, _Model())
            if counts:
                known.arrived += items - before if before is not None and items > before else items
                self._arrived.add(model)

    def _serve(self, worker: str, models: Mapping[str, Totals]) -> None:
        if self._now is not None:
            self._heard[worker] = self._now, models
        history = worker not in self._totals
        readings = self._totals.setdefault(worker, {})
        for model, now in models.items():
            before = readings.get(model)
            if now is before or not (0.0 <= now.compute_seconds < math.inf and 0 <= now.rows < math.inf):
                continue
            readings[model] = now
            if history:
                self._recall(model, now)
                continue
            if before is None or now.compute_seconds < before.compute_seconds or now.rows < before.rows:
                before = _ZERO
            seconds, rows = now.compute_seconds - before.compute_seconds, now.rows - before.rows
            if (seconds or rows) and seconds <= _LONGEST_SECONDS:
                self._measure(model, seconds, rows)

    def _recall(self, model: str, totals: Totals) -> None:
        """Takes what a model cost before as a first idea, which the first measurement outweighs."""
        known = self._models.setdefault(model, _Model())
        if known.cost is None:
            self._cost(known, totals.compute_seconds, totals.rows)

    def _measure(self, model: str, seconds: float, rows: int) -> None:
        known = self._models.setdefault(model, _Model())
        self._fade_costs(known)
        known.seconds += seconds
        known.rows += rows
        self._consumed += seconds
        self._cost(known, known.seconds, known.rows)

    @staticmethod
    def _cost(known: _Model, seconds: float, rows: float) -> None:
        if rows > 0.0 and seconds <= _LONGEST_SECONDS * rows:
            known.cost = seconds / rows

    def _fold(self) -> None:
        """Folds in what arrived since the last time."""
        kept = self._factor(self._consumed - self._folded)
        for model in self._arrived:
            known = self._models[model]
            known.rate = kept * self._rate(known) + (1.0 - kept) * known.arrived / self._elapsed
            known.rated = self._consumed
            known.arrived = 0
        self._arrived.clear()
        self._weight = kept * self._weight + (1.0 - kept)
        self._folded, self._elapsed = self._consumed, 0.0
        self._folds += 1
        if self._folds % _SWEEP_FOLDS == 0:
            self._sweep()

    def _sweep(self) -> None:
        """Forgets what is long gone: memory is bounded by what there is, not by what there was."""
        for worker, (heard, models) in list(self._heard.items()):
            if self._now is not None and self._now - heard > _GONE_SECONDS:
                del self._heard[worker], self._totals[worker]
                continue
            readings = self._totals[worker]
            for model in [name for name in readings if name not in models]:
                del readings[model]
        served = {model for readings in self._totals.values() for model in readings}
        listed = served | self._listed.keys() | self._arrived
        for model in [name for name in self._models if name not in listed]:
            if self._rate(self._models[model]) < _NO_RATE:
                del self._models[model]
                self._arrivals.pop(model, None)

    def _factor(self, seconds: float) -> float:
        return math.exp2(-seconds / self._halflife)

    def _rate(self, known: _Model) -> float:
        return known.rate * self._factor(self._folded - known.rated)

    def _fade_costs(self, known: _Model) -> None:
        factor = self._factor(self._consumed - known.measured)
        known.seconds *= factor
        known.rows *= factor
        known.measured = self._consumed

    def _mean_cost(self) -> float:
        costs = [known.cost for known in self._models.values() if known.cost is not None]
        return math.fsum(costs) / len(costs) if costs else UNMEASURED_SECONDS
