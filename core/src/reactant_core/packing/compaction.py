"""When placements have changed so much that workers should put their device memory in order."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import final

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_policy.placement.model import Plan


@final
class Compaction:
    """Counts the placements that changed something, and says whom to ask when it is time."""

    __slots__ = ("_changes", "_compact", "_workers")

    def __init__(self, compact: Callable[[Collection[str]], None]) -> None:
        self._compact = compact
        self._changes = 0
        self._workers: set[str] = set()

    def placed(self, plan: Plan, config: SchedulingConfig) -> None:
        """A placement came into force."""
        if not plan.moves:
            return
        self._changes += 1
        for move in plan.moves:
            self._workers.update(move.gone, move.new)
        if config.compaction_mode == "off" or self._changes < config.compaction_interval:
            return
        workers, self._workers, self._changes = self._workers, set(), 0
        self._compact(workers)
