"""Learned device time per (model, compiled size, input-shape variant)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

_LARGEST_STEP = 2.0
"""One sample counts as at most this many times what is known: a hiccup must not condemn a size."""

_FADE = 0.999
_FADED = 0.5
"""What a size's cost falls to, in small steps, while other sizes run: it is measured again some day."""

_FEW = 4
"""A size measured less often is not believed what no program does: a model is loaded while others are
compiled, and what its first run took may be several times what it takes."""

_JUST_BELOW = 1 - 1e-9


@final
@dataclass(slots=True)
class _Cost:
    seconds: float
    measured: int = 1
    faded: float = 1.0

    @property
    def few(self) -> bool:
        """It says little yet."""
        return self.measured < _FEW

    def take(self, seconds: float, alpha: float) -> None:
        """It was measured once more."""
        if self.few and seconds < self.seconds:
            # What disturbs a run makes it longer, never shorter.
            self.seconds = seconds
        else:
            self.seconds += alpha * (min(seconds, _LARGEST_STEP * self.seconds) - self.seconds)
        self.measured += 1
        self.faded = 1.0


@final
@dataclass(frozen=True, slots=True)
class Costs:
    """What the sizes of one variant take.

    Attributes:
        seconds: device time by size; 0 for all before the first observation.
        compared: what sizes are compared by: `seconds`, less where that is in doubt; rows before the first
            observation.
    """

    seconds: Mapping[int, float]
    compared: Mapping[int, float]


@final
class CostTable:
    """Exponential moving averages of device seconds.

    cost ← cost + α (min(observed, 2 cost) − cost), seeded by the first observation; of the first four the
    shortest counts. A size that is not run is not measured, so that one wrong estimate could keep it from
    ever running again. So while others of its variant run, its estimate fades to half; and one that rests on
    fewer than four observations is compared by less than other sizes take for its rows, or larger ones at
    all.
    """

    def __init__(self, alpha: float = 0.2) -> None:
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha must be in (0, 1], not {alpha}")
        self._alpha = alpha
        self._costs: dict[str, dict[int | None, dict[int, _Cost]]] = {}

    def observe(self, model: str, variant: int | None, size: int, seconds: float) -> None:
        """Folds one measured dispatch of `size` rows into the average."""
        sizes = self._costs.setdefault(model, {}).setdefault(variant, {})
        for other, cost in sizes.items():
            if other != size:
                cost.faded = max(_FADED, cost.faded * _FADE)
        known = sizes.get(size)
        if known is None:
            sizes[size] = _Cost(seconds)
        else:
            known.take(seconds, self._alpha)

    def forget(self, model: str) -> None:
        """Drops what was learned of a model that left."""
        self._costs.pop(model, None)

    def least(self, model: str) -> float:
        """Average seconds of the shortest dispatch of a model, 0 before the first observation."""
        variants = self._costs.get(model, {}).values()
        return min((cost.seconds for sizes in variants for cost in sizes.values()), default=0.0)

    def measured(self, model: str, variant: int | None, size: int) -> float | None:
        """Average seconds of one dispatch of `size` rows, None before the first observation."""
        known = self._costs.get(model, {}).get(variant, {}).get(size)
        return None if known is None else known.seconds

    def costs(self, model: str, variant: int | None, sizes: Sequence[int]) -> Costs:
        """What every size of a variant takes.

        An unmeasured one counts as proportional to its rows, by the mean seconds per row of those that are
        measured.
        """
        known = self._costs.get(model, {}).get(variant)
        if not known:
            return Costs(dict.fromkeys(sizes, 0.0), {size: float(size) for size in sizes})
        per_row = sum([cost.seconds / rows for rows, cost in known.items()]) / len(known)
        seconds: dict[int, float] = {}
        compared: dict[int, float] = {}
        for size in sizes:
            cost = known.get(size)
            seconds[size] = size * per_row if cost is None else cost.seconds
            compared[size] = size * per_row if cost is None else _compared(known, size, cost)
        return Costs(seconds, compared)


def _compared(known: Mapping[int, _Cost], size: int, cost: _Cost) -> float:
    own = cost.seconds * cost.faded
    if not cost.few:
        return own
    # Two runs of a smaller size do what one of twice the size does, and more rows never take less.
    others = (
        other.seconds * other.faded * max(1.0, size / rows) for rows, other in known.items() if rows != size
    )
    return min(own, _JUST_BELOW * min(others, default=own))
