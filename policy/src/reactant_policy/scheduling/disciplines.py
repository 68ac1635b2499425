"""Which model runs next. A discipline is one function here and one line in `DISCIPLINES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Candidate:
    """A model with waiting requests, as a discipline sees it.

    Attributes:
        model: its name.
        arrived: when its oldest request arrived, seconds on the caller's monotonic clock.
    """

    model: str
    arrived: float


Discipline = Callable[[Iterable[Candidate]], str]
"""Takes at least one candidate, returns the name of the one to run."""


def fifo(candidates: Iterable[Candidate]) -> str:
    """The model with the oldest head, ties by name."""
    return min(candidates, key=lambda c: (c.arrived, c.model)).model


DISCIPLINES: Mapping[str, Discipline] = MappingProxyType({"fifo": fifo})
