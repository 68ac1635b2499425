"""Device time shared by weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from reactant_policy.scheduling.discipline import Candidate, Discipline

_FOLD_HALFLIVES = 64.0


@final
class Fair(Discipline):
    """The model that is furthest below its share of the recent device time, per second of its batch.

    share = weight ÷ Σ weight and recent = use ÷ Σ use, both over the candidates, where one second on the
    device adds one to a model's use and use halves every half-life. Score = (share − recent, at most the
    cap) ÷ seconds of the batch, which for a coalesced one count less. The differences add up to 0, so that
    the best is never negative: that needs no bound from below.

    A model that had nothing waiting gets no more than the credit of those that run (`woke`): else the
    device would be its own until its use had caught up with what others had while it asked for nothing.
    """

    def __init__(
        self, *, ema_halflife_seconds: float, recency_penalty_cap: float, coalescing_discount: float
    ) -> None:
        self._halflife = ema_halflife_seconds
        self._cap = recency_penalty_cap
        self._discounted = max(1.0 - coalescing_discount, 1e-9)
        # Use ÷ weight. Every use fades by the same factor, which only ratios never see: instead of fading
        # the old, the new counts more, 2 ^ (half-lives since the origin).
        self._used: dict[str, float] = {}
        self._level = 0.0
        self._origin = 0.0

    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        """See `Discipline.pick`."""
        uses = [c.weight * self._used.get(c.model, 0.0) for c in candidates]
        per_weight = 1.0 / sum([c.weight for c in candidates])
        total = sum(uses)
        per_use = 1.0 / total if total > 0.0 else 0.0
        cap, discounted = self._cap, self._discounted
        chosen = candidates[0]
        best = -float("inf")
        for candidate, use in zip(candidates, uses, strict=True):
            below = candidate.weight * per_weight - use * per_use
            below = min(below, cap)
            seconds = candidate.seconds * discounted if candidate.coalesced else candidate.seconds
            score = below / seconds
            if score > best or (
                score == best and (candidate.arrived, candidate.model) < (chosen.arrived, chosen.model)
            ):
                chosen, best = candidate, score
        self._level = max(self._level, self._used.get(chosen.model, 0.0))
        return chosen

    def woke(self, model: str) -> None:
        """See `Discipline.woke`."""
        self._used[model] = max(self._used.get(model, 0.0), self._level)

    def spent(self, model: str, weight: float, seconds: float, now: float) -> None:
        """See `Discipline.spent`."""
        halflives = (now - self._origin) / self._halflife
        if halflives > _FOLD_HALFLIVES:
            self._fold(halflives)
            self._origin, halflives = now, 0.0
        used = self._used.get(model, 0.0) + seconds / weight * 2.0**halflives
        self._used[model] = max(used, 0.0)

    def forget(self, model: str) -> None:
        """See `Discipline.forget`."""
        self._used.pop(model, None)

    def _fold(self, halflives: float) -> None:
        factor = 2.0 ** -min(halflives, 1000.0)
        self._level *= factor
        for model, used in self._used.items():
            self._used[model] = used * factor
