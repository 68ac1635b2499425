"""Learned device time per (model, compiled size, input-shape variant)."""

from __future__ import annotations

from typing import final


@final
class CostTable:
    """Exponential moving averages of device seconds.

    cost ← cost + α (observed − cost), seeded by the first observation.
    """

    def __init__(self, alpha: float = 0.2) -> None:
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha must be in (0, 1], not {alpha}")
        self._alpha = alpha
        self._seconds: dict[str, dict[int | None, dict[int, float]]] = {}

    def observe(self, model: str, variant: int | None, size: int, seconds: float) -> None:
        """Folds one measured dispatch of `size` rows into the average."""
        sizes = self._seconds.setdefault(model, {}).setdefault(variant, {})
        known = sizes.get(size)
        sizes[size] = seconds if known is None else known + self._alpha * (seconds - known)

    def forget(self, model: str) -> None:
        """Drops what was learned of a model that left."""
        self._seconds.pop(model, None)

    def measured(self, model: str, variant: int | None, size: int) -> float | None:
        """Seconds of one dispatch of `size` rows, None before the first observation."""
        return self._seconds.get(model, {}).get(variant, {}).get(size)

    def estimate(self, model: str, variant: int | None, size: int) -> float:
        """As `measured`; an unmeasured size counts as proportional to its rows.

        The scale is the mean seconds per row of the variant's measured sizes, 1 when there are none
        (then only ratios between sizes mean anything).
        """
        sizes = self._seconds.get(model, {}).get(variant)
        if not sizes:
            return float(size)
        known = sizes.get(size)
        if known is not None:
            return known
        return size * sum(seconds / rows for rows, seconds in sizes.items()) / len(sizes)
