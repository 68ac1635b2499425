"""Every model this worker knows by name, and the state it is in. Used on the event loop only."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterator, Sequence
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
        internal: only metas may call it; to clients it does not exist.
        reason: why it is not READY, or why its last reload failed; empty otherwise.
        model: the version that serves; set while READY, and for a meta also while it waits for its models.
        retiring: versions that were replaced, and finish the requests that began with them.
        preparing: admitted requests that are not in the engine's queue yet.
        retired: engine counters of versions that are gone.
    """

    name: str
    internal: bool = False
    state: ModelState = ModelState.LOADING
    reason: str = ""
    model: ServedModel | None = None
    retiring: list[ServedModel] = field(default_factory=list)
    preparing: int = 0
    counters: ModelCounters = field(default_factory=ModelCounters)
    retired: EngineStatistics = _NOTHING
    _users: dict[str, int] = field(default_factory=dict)
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def versions(self) -> tuple[ServedModel, ...]:
        """Every version that still has requests or may get some; the one that serves comes first."""
        return (*(() if self.model is None else (self.model,)), *self.retiring)

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

    def retire(self, model: ServedModel) -> None:
        """Forgets a version that nothing runs on any more."""
        if model is self.model:
            self.model = None
        else:
            self.retiring.remove(model)

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
        self._awaited: list[asyncio.Future[None]] = []

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

    def begin(self, name: str, *, internal: bool = False, reason: str = "") -> Entry:
        """Marks a name as loading; one that serves keeps serving its version meanwhile."""
        entry = self._entries.setdefault(name, Entry(name))
        if entry.model is None:
            entry.internal = internal
            entry.state, entry.reason = ModelState.LOADING, reason
            self._announce(entry)
        return entry

    def ready(self, entry: Entry, model: ServedModel) -> ServedModel | None:
        """Puts a version into service; returns the one it replaces, which is among `retiring` now."""
        previous, entry.model = entry.model, model
        if previous is not None:
            entry.retiring.append(previous)
        entry.internal = model.bundle.manifest.internal
        entry.state, entry.reason = self._standing(model.calls)
        self._announce(entry)
        return previous

    def failed(self, entry: Entry, reason: str, *, final: bool = True) -> None:
        """Records a failed load; a version that serves goes on serving.

        One that is not `final` leaves a name that does not serve LOADING: its files may still be coming.
        """
        entry.reason = reason
        if entry.model is None:
            entry.state = ModelState.UNAVAILABLE if final else ModelState.LOADING
            self._announce(entry)

    def kept(self, entry: Entry) -> None:
        """Forgets that a later version failed: the one that serves is the latest again."""
        if entry.model is not None:
            entry.state, entry.reason = self._standing(entry.model.calls)
            self._announce(entry)

    def unloading(self, entry: Entry) -> None:
        """No new request is admitted from here on."""
        entry.state, entry.reason = ModelState.UNLOADING, ""
        self._announce(entry)

    def remove(self, entry: Entry) -> None:
        """Forgets the name."""
        if self._entries.get(entry.name) is entry:
            del self._entries[entry.name]
        self._on_change(entry.name, None)
        self._follow(entry.name)

    def weight_bytes(self, model: ServedModel) -> int:
        """Bytes of a version's weight set; of a meta, those of all the models it calls that are there."""
        called = (self._entries.get(name) for name in model.calls)
        return model.weight_bytes + sum(e.model.weight_bytes for e in called if e is not None and e.model)

    def lacking(self, calls: Sequence[str]) -> str:
        """What keeps a meta that calls these models from running; empty when all of them are READY."""
        return self._standing(calls)[1]

    async def wait_callable(self, calls: Sequence[str]) -> None:
        """Waits until all of these models are READY."""
        while self.lacking(calls):
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.append(change)
            await change

    def callers(self, name: str) -> Iterator[Entry]:
        """The metas that call `name`."""
        return (entry for entry in self if entry.model is not None and name in entry.model.calls)

    def _standing(self, calls: Sequence[str]) -> tuple[ModelState, str]:
        """The state that a version which calls these models is in once it is built, and the reason for it."""
        for name in calls:
            called = self._entries.get(name)
            if called is None:
                return ModelState.UNAVAILABLE, f"needs model '{name}', which is not there"
            if called.model is not None and called.model.meta:
                return ModelState.UNAVAILABLE, f"calls '{name}', which is a meta; a meta calls models only"
            if called.state is not ModelState.READY:
                loading = called.state is ModelState.LOADING
                state = ModelState.LOADING if loading else ModelState.UNAVAILABLE
                reason = f": {called.reason}" if called.reason else ""
                return state, f"needs model '{name}', which is {called.state.value.lower()}{reason}"
        return ModelState.READY, ""

    def _follow(self, name: str) -> None:
        """Lets the metas that call `name` become ready with it, or not; and what waits for it go on."""
        awaited, self._awaited = self._awaited, []
        for change in awaited:
            if not change.done():
                change.set_result(None)
        for caller in [*self.callers(name)]:
            if caller.model is None or caller.state is ModelState.UNLOADING:
                continue
            standing = self._standing(caller.model.calls)
            was_ready = caller.state is ModelState.READY
            if was_ready and standing[0] is ModelState.READY:
                continue  # the reason, if there is one, is why its last reload failed
            if standing != (caller.state, caller.reason):
                caller.state, caller.reason = standing
                self._announce(caller)

    def _announce(self, entry: Entry) -> None:
        # To a client an internal model does not exist.
        self._on_change(entry.name, None if entry.internal else entry.state is ModelState.READY)
        self._follow(entry.name)
