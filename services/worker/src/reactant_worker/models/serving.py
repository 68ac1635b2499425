"""Puts versions into service and takes them out again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import final

from reactant_policy.scheduling.scheduler import ModelTerms
from reactant_worker.engine.port import Engine, EngineStatistics
from reactant_worker.models.catalog import Catalog, Entry
from reactant_worker.models.served import ServedModel
from reactant_worker.models.version import Version


@final
class Serving:
    """Keeps engine and catalog in step. Used on the event loop only."""

    def __init__(
        self, *, catalog: Catalog, engine: Engine, terms: Callable[[ServedModel], ModelTerms]
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._terms = terms
        # A module is shared by the versions that a rename made of one.
        self._module_users: Counter[str] = Counter()

    def begin(self, entry: Entry, version: Version) -> None:
        """Lets a version serve from now on; `end` has to be awaited for the one it replaces, if any."""
        model = version.model
        if version.runnable is not None:
            self._engine.attach(model.key, version.runnable, self._terms(model))
        for (variant, size), seconds in version.costs.items():
            self._engine.observe(model.key, variant, size, seconds)
        if model.hooks is not None:
            self._module_users[model.hooks.module_name] += 1
        self._catalog.ready(entry, model)

    async def end(self, entry: Entry, model: ServedModel) -> None:
        """Waits until no request holds a version that gets no new ones, and lets go of it."""
        await entry.wait_released(model)
        if not model.meta:
            entry.retired = add(entry.retired, self._engine.statistics(model.key))
            self._engine.detach(model.key)
        entry.retire(model)
        if model.hooks is not None:
            self._module_users[model.hooks.module_name] -= 1
            if not self._module_users[model.hooks.module_name]:
                del self._module_users[model.hooks.module_name]
                model.hooks.close()

    def totals(self, entry: Entry) -> EngineStatistics:
        """What the engine has done for a name, all its versions together. It never falls."""
        total = entry.retired
        for model in entry.versions:
            if not model.meta:
                total = add(total, self._engine.statistics(model.key))
        return total


def add(left: EngineStatistics, right: EngineStatistics) -> EngineStatistics:
    """Counters of two versions of one model together."""
    return EngineStatistics(
        left.depth + right.depth,
        left.dispatches + right.dispatches,
        left.requests + right.requests,
        left.rows + right.rows,
        left.compute_seconds + right.compute_seconds,
    )
