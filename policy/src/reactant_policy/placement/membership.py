"""When a change of the fleet is worth another placement. Pure: time is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

LEAVE_SECONDS: Final = 10.0
"""A worker is gone after so long: most of those that die are back by then, and keep their models."""
RETURN_SECONDS: Final = 60.0
"""And after so long when it answers meanwhile that it is loading: it will be back with what it had."""
QUIET_SECONDS: Final = 1.0
"""A change is acted on when nothing else has changed for so long: workers load a model in turn."""
PATIENCE_SECONDS: Final = 5.0
"""And at the latest after so long, however much goes on changing."""


@final
@dataclass(frozen=True, slots=True)
class Fleet:
    """What models can be placed on.

    Attributes:
        workers: those that take placements.
        eligible: by model, those of them that have it READY; sorted.
        away: workers that are expected to serve and are out of reach, or say that they are not ready.
        returning: those of them that answer and are loading.
    """

    workers: frozenset[str] = frozenset()
    eligible: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    away: frozenset[str] = frozenset()
    returning: frozenset[str] = frozenset()


@final
class Membership:
    """Compares the fleet with the one that was last placed on."""

    __slots__ = ("_changed", "_first", "_missing", "_placed", "_seen")

    def __init__(self) -> None:
        self._placed = Fleet()
        self._seen = Fleet()
        self._missing: dict[str, float] = {}
        # When what is not yet acted on began, and when it last changed; None: nothing has.
        self._first: float | None = None
        self._changed = 0.0

    def placed(self, fleet: Fleet) -> None:
        """A placement on `fleet` is in force."""
        self._placed = self._seen = fleet
        self._missing = {}
        self._first = None

    @property
    def in_doubt(self) -> bool:
        """A worker is away and not given up: placing anew now might be undone soon."""
        return bool(self._missing)

    def due(self, now: float, fleet: Fleet) -> bool:
        """Whether to place anew.

        Args:
            now: monotonic seconds.
            fleet: as it is; the same object as long as nothing of it changed.
        """
        if fleet is not self._seen:
            self._see(now, fleet)
        if any(now - since >= _patience(worker, fleet) for worker, since in self._missing.items()):
            return True
        if self._first is None:
            return False
        return now - self._changed >= QUIET_SECONDS or now - self._first >= PATIENCE_SECONDS

    def _see(self, now: float, fleet: Fleet) -> None:
        before, self._seen = self._seen, fleet
        gone = self._placed.workers - fleet.workers
        self._missing = {worker: self._missing.get(worker, now) for worker in gone}
        if not self._differs(fleet):
            self._first = None
            return
        if self._first is None:
            self._first = now
        if before.workers != fleet.workers or before.eligible != fleet.eligible:
            self._changed = now

    def _differs(self, fleet: Fleet) -> bool:
        """Whether there is something to place, or to place elsewhere, that waits for no worker's return."""
        placed = self._placed
        if fleet.workers - placed.workers:
            return True
        if fleet.workers == placed.workers and fleet.eligible == placed.eligible:
            return False
        away = placed.workers - fleet.workers
        for model, eligible in fleet.eligible.items():
            known = placed.eligible.get(model)
            if known == eligible:
                continue
            # A model that no worker has any more leaves nothing to place; one whose worker is away waits.
            if known is None or (eligible and tuple(w for w in known if w not in away) != eligible):
                return True
        return False


def _patience(worker: str, fleet: Fleet) -> float:
    """How long a worker that had models may be gone from the fleet before they are placed elsewhere."""
    if worker in fleet.returning:
        return RETURN_SECONDS
    # One that nobody lists any more, or that may have no models, will not be back.
    return LEAVE_SECONDS if worker in fleet.away else QUIET_SECONDS
