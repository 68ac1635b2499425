"""Every model this worker knows by name, and the state it is in. Used on the event loop only."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import final

from reactant_core.errors import ModelNotFound, ModelUnavailable
from reactant_core.kserve.surface import MODEL_VERSION, unknown_model
from reactant_worker.engine.port import EngineStatistics
from reactant_worker.models.counters import ModelCounters
from reactant_worker.models.served import ServedModel

VERSION = MODEL_VERSION
"""The only version a model has; requests may also leave it empty."""


_NOTHING = EngineStatistics(0, 0, 0, 0, 0.0)


@final
class ModelState(enum.Enum):
    """States of the repository index."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@final
@dataclass(slots=True, eq=False)
class Entry:
    """One model name.

    Attributes:
        reason: why it is not READY, or why its last reload failed; empty otherwise.
        model: the version that serves; set while READY.
        preparing: admitted requests that are not in the engine's queue yet.
        retired: engine counters of versions that no longer serve.
    """

    name: str
    state: ModelState = ModelState.LOADING
    reason: str = ""
    model: ServedModel | None = None
    preparing: int = 0
    counters: ModelCounters = field(default_factory=ModelCounters)
    retired: EngineStatistics = _NOTHING
    _users: dict[str, int] = field(default_factory=dict)
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def internal(self) -> bool:
        """Only metas may call it."""
        return self.model is not None and self.model.bundle.manifest.internal

    def hold(self, model: ServedModel) -> None:
        """Keeps a version attached to the engine until the matching `release`."""
        self._users[model.key] = self._users.get(model.key, 0) + 1

    def release(self, model: ServedModel) -> None:
        """Ends one `hold`."""
        left = self._users[model.key] - 1
        if left:
            self._users[model.key] = left
        else:
            del self._users[model.key]
            self._released.set()

    async def wait_released(self, model: ServedModel) -> None:
        """Waits until no request holds the version."""
        while model.key in self._users:
            self._released.clear()
            await self._released.wait()

    def ready_model(self) -> ServedModel:
        """The serving version; raises ModelUnavailable with the state and the reason."""
        if self.state is ModelState.READY and self.model is not None:
            return self.model
        raise ModelUnavailable(self.describe(), not_started=True)

    def describe(self) -> str:
        """A sentence on why the model cannot take requests."""
        text = f"model '{self.name}' is {self.state.value.lower()}"
        return f"{text}: {self.reason}" if self.reason else text


@final
class Catalog:
    """Name → entry. `on_change(name, ready)` is called whenever a name's readiness may have changed."""

    def __init__(self, on_change: Callable[[str, bool | None], None] = lambda _name, _ready: None) -> None:
        self._entries: dict[str, Entry] = {}
        self._on_change = on_change

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def visible(self) -> Iterator[Entry]:
        """Entries that clients may see."""
        return (entry for entry in self if not entry.internal)

    def get(self, name: str) -> Entry | None:
        """The entry of a name, in whatever state."""
        return self._entries.get(name)

    def find(self, name: str, version: str = "") -> Entry:
        """The entry a client may ask about; raises ModelNotFound for an unknown name or version."""
        entry = self._entries.get(name)
        if entry is None or entry.internal:
            raise unknown_model(name)
        if version not in ("", VERSION):
            raise ModelNotFound(
                f"model '{name}' has no version '{version}', only '{VERSION}'", not_started=True
            )
        return entry

    def begin(self, name: str) -> Entry:
        """Marks a name as loading; one that serves keeps serving its version meanwhile."""
        entry = self._entries.setdefault(name, Entry(name))
        if entry.model is None:
            entry.state, entry.reason = ModelState.LOADING, ""
            self._announce(entry, ready=False)
        return entry

    def ready(self, entry: Entry, model: ServedModel) -> ServedModel | None:
        """Puts a version into service; returns the one it replaces."""
        previous, entry.model = entry.model, model
        entry.state, entry.reason = ModelState.READY, ""
        self._announce(entry, ready=True)
        return previous

    def failed(self, entry: Entry, reason: str) -> None:
        """Records a failed load; a version that serves goes on serving."""
        entry.reason = reason
        if entry.model is None:
            entry.state = ModelState.UNAVAILABLE
            self._announce(entry, ready=False)

    def unloading(self, entry: Entry) -> None:
        """No new request is admitted from here on."""
        entry.state, entry.reason = ModelState.UNLOADING, ""
        self._announce(entry, ready=False)

    def remove(self, entry: Entry) -> None:
        """Forgets the name."""
        if self._entries.get(entry.name) is entry:
            del self._entries[entry.name]
        self._on_change(entry.name, None)

    def _announce(self, entry: Entry, *, ready: bool) -> None:
        # To a client an internal model does not exist.
        self._on_change(entry.name, None if entry.internal else ready)
