"""Loading and unloading by request: a meta comes with the models that it calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from reactant_core.bundle.errors import BundleError
from reactant_worker.models.catalog import Catalog, ModelState
from reactant_worker.models.declared import declared_calls
from reactant_worker.models.loader import Loader


async def load_together(loader: Loader, catalog: Catalog, name: str, bundles: Mapping[str, Path]) -> None:
    """Loads or reloads `name`; before a meta, those of the models it calls that do not serve.

    `bundles` is what the repository holds. Raises BundleError when `name` does not come to serve. A meta
    that lacks a model stays all the same, and serves as soon as it is there.
    """
    calls = await asyncio.to_thread(declared_calls, bundles[name])
    absent = [
        called for called in calls if called in bundles and called != name and not _serves(catalog, called)
    ]
    # What keeps one of them from serving is the reason that the meta then has.
    await asyncio.gather(*(loader.load(called, bundles[called]) for called in absent), return_exceptions=True)
    if _serves(catalog, name) and (lacking := catalog.lacking(calls)):
        raise BundleError([f"its new version {lacking}"])  # the one that serves goes on
    await loader.load(name, bundles[name])
    if lacking := catalog.lacking(calls):
        raise BundleError([lacking])


async def unload_together(loader: Loader, catalog: Catalog, name: str) -> None:
    """Unloads `name`, and the internal models that only it called: nobody else could."""
    entry = catalog.get(name)
    called = entry.model.calls if entry is not None and entry.model is not None else ()
    await loader.unload(name)
    for other in called:
        found = catalog.get(other)
        if found is not None and found.internal and not any(catalog.callers(other)):
            await loader.unload(other)


def _serves(catalog: Catalog, name: str) -> bool:
    entry = catalog.get(name)
    return entry is not None and entry.state is ModelState.READY
