"""What a discipline sees, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, final


@final
@dataclass(slots=True)
class Candidate:
    """A model whose next batch could run now, as a discipline sees it.

    Attributes:
        model: its name.
        weight: share of device time relative to other models.
        arrived: when its oldest request arrived, seconds on the caller's monotonic clock.
        deadline: the soonest that it holds, same clock; infinite without one.
        seconds: device time that the batch would take, more than 0.
        coalesced: the batch holds several requests.
    """

    model: str
    weight: float = 1.0
    arrived: float = 0.0
    deadline: float = inf
    seconds: float = 1.0
    coalesced: bool = False


class Discipline(ABC):
    """Chooses between models. It may hold state: each scheduler has its own.

    Attributes:
        sheds: requests that cannot meet their deadline any more are dropped.
    """

    sheds: ClassVar[bool] = False

    @abstractmethod
    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        """The one to run, of at least one."""

    def woke(self, model: str) -> None:  # noqa: B027
        """Something waits for a model for which nothing did."""

    def spent(self, model: str, weight: float, seconds: float, now: float) -> None:  # noqa: B027
        """The device spent `seconds` on a model; less than 0 takes back what was said before."""

    def forget(self, model: str) -> None:  # noqa: B027
        """A model left."""
