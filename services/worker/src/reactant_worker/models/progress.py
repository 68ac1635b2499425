"""How far the start-up set is: for `/readyz`, logs and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(slots=True)
class Progress:
    """Counts of models and programs; read by any thread, written by the loader's callbacks.

    Attributes:
        started: monotonic seconds at which loading began.
    """

    started: float
    models_total: int = 0
    models_ready: int = 0
    models_failed: int = 0
    programs_total: int = 0
    programs_done: int = 0

    @property
    def settled(self) -> bool:
        """Every model of the start-up set is READY or UNAVAILABLE."""
        return self.models_ready + self.models_failed >= self.models_total

    def settle(self, *, ready: bool) -> None:
        """Counts a model whose outcome is known."""
        if ready:
            self.models_ready += 1
        else:
            self.models_failed += 1

    def seconds_left(self, now: float) -> float | None:
        """Elapsed time ÷ programs done × programs left; None before the first is done."""
        left = self.programs_total - self.programs_done
        if self.settled or left <= 0:
            return 0.0
        if self.programs_done == 0:
            return None
        return (now - self.started) / self.programs_done * left

    def body(self, now: float) -> dict[str, Any]:
        """The progress part of the `/readyz` body."""
        left = self.seconds_left(now)
        return {
            "models": {
                "total": self.models_total,
                "ready": self.models_ready,
                "failed": self.models_failed,
            },
            "programs": {"done": self.programs_done, "total": self.programs_total},
            "seconds_left": None if left is None else round(left, 1),
        }
