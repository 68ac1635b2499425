"""Which replica of a model is next. A rule is one class, here or beside, and one line in `SPREADS`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, final


class Spread(ABC):
    """A rule with what it remembers of its own choices.

    Attributes:
        looks_at_load: whether a choice depends on the work in flight, so that it is worth measuring.
        follows_requests: whether it must be told of every attempt, by `began` and `ended`.
    """

    __slots__ = ()
    looks_at_load: ClassVar[bool] = True
    follows_requests: ClassVar[bool] = False

    @abstractmethod
    def choose(
        self,
        model: str,
        candidates: Sequence[str],
        load: Mapping[str, float],
        max_batch: int = 0,
        item_work: float = 0.0,
    ) -> str:
        """One of `candidates`, which are sorted and at least one.

        Args:
            model: what the request is for.
            candidates: workers that can take it.
            load: work in flight by worker; none listed is none in flight.
            max_batch: most items of the model in one request; 0 without a batch axis.
            item_work: what an item of the model adds to the work in flight, in the unit of `load`.
        """

    def began(self, model: str, worker: str, items: int) -> None:  # noqa: B027 (most rules need not know)
        """An attempt of `items` items was sent to `worker`, which `choose` had named."""

    def ended(self, model: str, worker: str, items: int) -> None:  # noqa: B027
        """It is over, however it went: told once for each that began, with the same arguments."""


@final
class RoundRobin(Spread):
    """Each model goes round its candidates in the order of their names.

    What is remembered is the name last chosen, so that a candidate that comes or goes changes nothing for
    the others. Models that are new start one after the other, not all on the first worker.
    """

    __slots__ = ("_last", "_models")
    looks_at_load = False

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._models = 0

    def choose(
        self,
        model: str,
        candidates: Sequence[str],
        load: Mapping[str, float],
        max_batch: int = 0,
        item_work: float = 0.0,
    ) -> str:
        last = self._last.get(model)
        if last is None:
            chosen = candidates[self._models % len(candidates)]
            self._models += 1
        else:
            index = bisect_right(candidates, last)
            chosen = candidates[index if index < len(candidates) else 0]
        self._last[model] = chosen
        return chosen


@final
class LeastOutstanding(Spread):
    """The candidate with the least work in flight; ties go round in the order of names, over all models."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = ""

    def choose(
        self,
        model: str,
        candidates: Sequence[str],
        load: Mapping[str, float],
        max_batch: int = 0,
        item_work: float = 0.0,
    ) -> str:
        get = load.get
        loads = [get(candidate, 0.0) for candidate in candidates]
        least = min(loads)
        index = loads.index(least)
        if loads.count(least) > 1:
            after = bisect_right(candidates, self._last)
            if least in loads[after:]:
                index = loads.index(least, after)
        chosen = self._last = candidates[index]
        return chosen


SPREADS: Mapping[str, type[Spread]] = MappingProxyType(
    {"round_robin": RoundRobin, "least_outstanding": LeastOutstanding}
)
"""By the value of `scheduling.mode`: the rules that have no settings. `lpt_packing` is `packed.Packed`."""
