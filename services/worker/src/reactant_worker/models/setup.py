"""Loading hooks on a thread that nobody has to wait for."""

from __future__ import annotations

import threading
from typing import final

from reactant_core.bundle.repository import Bundle
from reactant_worker.models.hooks import Hooks, load_hooks
from reactant_worker.pool import WorkPool


async def load_beside(bundle: Bundle) -> Hooks | None:
    """Imports `model.py` and runs its `setup` on a thread of its own; None without the file.

    So a `setup` that never returns does not keep other models from loading. Cancelled, what it loads
    later is closed then. Raises what `load_hooks` raises.
    """
    if bundle.hooks is None:
        return None
    own = WorkPool(1, f"setup-{bundle.name}")
    loading = _Loading(bundle)
    try:
        return await own.run(loading.run)
    except BaseException:
        loading.give_up()
        raise
    finally:
        own.close()


@final
class _Loading:
    """Hooks that either reach the one who asked for them or are closed."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._lock = threading.Lock()
        self._loaded: Hooks | None = None
        self._given_up = False

    def run(self) -> Hooks | None:
        hooks = load_hooks(self._bundle)
        with self._lock:
            self._loaded = hooks
        self._close_unwanted()
        return hooks

    def give_up(self) -> None:
        with self._lock:
            self._given_up = True
        self._close_unwanted()

    def _close_unwanted(self) -> None:
        with self._lock:
            if self._given_up and self._loaded is not None:
                self._loaded.close()
