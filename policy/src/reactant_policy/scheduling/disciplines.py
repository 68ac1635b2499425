"""Which model runs next. A discipline is one class, and one line in `make_discipline`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from reactant_policy.scheduling.discipline import Candidate, Discipline
from reactant_policy.scheduling.fair import Fair

DISCIPLINE_NAMES = ("fair", "fifo", "edf")


@final
class Fifo(Discipline):
    """The model with the oldest head, ties by name."""

    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        """See `Discipline.pick`."""
        return min(candidates, key=lambda c: (c.arrived, c.model))


@final
class Edf(Discipline):
    """The model that holds the soonest deadline, then the oldest head, then by name."""

    sheds = True

    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        """See `Discipline.pick`."""
        return min(candidates, key=lambda c: (c.deadline, c.arrived, c.model))


def make_discipline(
    name: str,
    *,
    ema_halflife_seconds: float = 30.0,
    recency_penalty_cap: float = 0.25,
    coalescing_discount: float = 0.1,
) -> Discipline:
    """A new discipline by its name; ValueError when there is none.

    Args:
        name: one of `DISCIPLINE_NAMES`.
        ema_halflife_seconds: memory of recent use (`fair`).
        recency_penalty_cap: bound of share minus recent use (`fair`).
        coalescing_discount: part of its cost that a batch of several requests is let off (`fair`).
    """
    match name:
        case "fair":
            return Fair(
                ema_halflife_seconds=ema_halflife_seconds,
                recency_penalty_cap=recency_penalty_cap,
                coalescing_discount=coalescing_discount,
            )
        case "fifo":
            return Fifo()
        case "edf":
            return Edf()
        case _:
            raise ValueError(f"unknown discipline {name!r}; accepted is {', '.join(DISCIPLINE_NAMES)}")
