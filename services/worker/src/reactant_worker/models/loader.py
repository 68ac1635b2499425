"""Loads, reloads, renames and unloads models by name."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.repository import WEIGHTS, Bundle
from reactant_core.clock import Clock
from reactant_core.logs import get_logger
from reactant_policy.lifecycle import Known
from reactant_policy.looks import Look
from reactant_policy.scheduling.scheduler import ModelTerms
from reactant_worker.device import Device
from reactant_worker.engine.port import Engine, EngineStatistics
from reactant_worker.models.builder import Builder
from reactant_worker.models.catalog import Catalog, Entry, ModelState
from reactant_worker.models.declared import declares_internal
from reactant_worker.models.look import disturbed, look_at
from reactant_worker.models.progress import Progress
from reactant_worker.models.served import ServedModel
from reactant_worker.models.serving import Serving
from reactant_worker.models.version import PlacedWeights, Version, release
from reactant_worker.pool import WorkPool

_log = get_logger(__name__)


@final
@dataclass(frozen=True, slots=True)
class Move:
    """A bundle under another name: `new` takes over what `old` serves.

    Attributes:
        path: where it is now.
        look: its files there.
    """

    old: str
    new: str
    path: Path
    look: Look


@final
@dataclass(slots=True, eq=False)
class _Name:
    """What is kept of a name.

    Attributes:
        path: its bundle.
        version: what serves.
        served: the files that it was loaded from.
        attempted: files of a later load, or of the first, that is under way or failed.
        loading: the load that is under way.
        ending: what waits for the last requests of versions that were replaced.
        reported: the last failure that was logged.
    """

    path: Path
    version: Version | None = None
    served: Look | None = None
    attempted: Look | None = None
    loading: asyncio.Task[None] | None = None
    ending: set[asyncio.Task[None]] = field(default_factory=set)
    reported: str = ""

    def give_up(self) -> None:
        """Ends the load that is under way, if any."""
        if self.loading is not None:
            self.loading.cancel()
            self.loading = None
            self.attempted = None

    def same_weights(self, changed: Collection[str] | None) -> PlacedWeights | None:
        """The weights that serve, when the load that is under way has the same."""
        if self.version is None or self.served is None or self.attempted is None:
            return None
        if changed is None:
            same = self.served.get(WEIGHTS) == self.attempted.get(WEIGHTS)
        else:
            same = WEIGHTS not in changed
        return self.version.weights if same else None


@final
class Loader:
    """Decides on the event loop what each name serves; the heavy steps run on the pools.

    An operation once begun is finished, whether or not the one who asked for it still waits. Only a load
    gives way: to an unload of its model, and to a load of other files.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        engine: Engine,
        device: asyncio.Future[Device],
        pool: WorkPool,
        compile_pool: WorkPool,
        beside_pool: WorkPool,
        clock: Clock,
        terms: Callable[[ServedModel], ModelTerms],
    ) -> None:
        self._catalog = catalog
        self._serving = Serving(catalog=catalog, engine=engine, terms=terms)
        self._builder = Builder(
            device=device, pool=pool, compile_pool=compile_pool, beside_pool=beside_pool, clock=clock
        )
        self._pool = pool
        self._clock = clock
        self._names: dict[str, _Name] = {}
        # A lock lives as long as somebody holds or awaits it.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._operations: set[asyncio.Task[None]] = set()
        self.progress = Progress(clock.monotonic())

    async def announce(self, bundles: Mapping[str, Path]) -> None:
        """Makes the start-up set known, before anything of it is loaded: LOADING, not unknown."""
        self.progress.models_total = len(bundles)
        for name in sorted(bundles):
            await self._begin(name, bundles[name])

    async def load_all(self, bundles: Mapping[str, Path]) -> None:
        """Settles the start-up set: each model ends READY or UNAVAILABLE, none stops the others."""
        self._builder.executables.serving = False
        entries = [
            self._catalog.get(name) or await self._begin(name, bundles[name]) for name in sorted(bundles)
        ]
        # All bundles are read before the first is compiled, so that the total is known early.
        read = await asyncio.gather(*(self._read(entry) for entry in entries))
        self.progress.programs_total = sum(len(b.programs) for b in read if b is not None)
        await asyncio.gather(
            *(self._settle(entry, bundle) for entry, bundle in zip(entries, read, strict=True))
        )
        for entry in entries:
            # Whether a meta came to serve is known when the models that it calls are settled.
            if entry.model is not None and entry.model.meta:
                self.progress.settle(ready=entry.state is ModelState.READY)
        self._builder.executables.serving = True

    async def expect(self, name: str, path: Path, reason: str) -> None:
        """Makes a bundle known that is loaded later: LOADING, for this reason."""
        await self._begin(name, path, reason)

    async def load(
        self, name: str, path: Path, look: Look | None = None, changed: Collection[str] | None = None
    ) -> None:
        """Loads or reloads one model; where the same files serve already, or are loading, that is enough.

        Args:
            name: the model's.
            path: the bundle.
            look: its files, which a later look will follow: a bundle that does not validate stays LOADING.
                None takes the files that are there, and such a bundle is UNAVAILABLE.
            changed: the paths whose contents are not those that serve, where that is known.

        Raises:
            BundleError: it does not come to serve.
        """
        files = look if look is not None else await self._pool.run(look_at, path)
        known = self._names.setdefault(name, _Name(path))
        if known.loading is None or known.attempted != files:
            known.give_up()
            known.path, known.attempted = path, files
            known.loading = self._start(self._load(name, known, changed, final=look is None))
        await _outcome(known.loading)

    async def unload(self, name: str) -> None:
        """Refuses new requests, waits for those in flight, and forgets the model."""
        await _outcome(self._start(self._unload(name)))

    def rename(self, moves: Sequence[Move]) -> None:
        """Lets names serve what others do, all at once; nothing is compiled, loaded or set up.

        The old names go on until they are unloaded.
        """
        taken = [(move, self._names[move.old].version) for move in moves]
        for move, version in taken:
            if version is None:
                continue
            internal = version.model.bundle.manifest.internal
            entry = self._catalog.begin(move.new, internal=internal)
            known = self._names.setdefault(move.new, _Name(move.path))
            known.give_up()
            known.path, known.attempted = move.path, move.look
            self._put(entry, known, version.moved(move.path))
            _log.info("model renamed", model=move.new, old=move.old)

    def keep(self, name: str, path: Path, look: Look) -> None:
        """Takes note that what serves is what these files hold: nothing that failed meanwhile counts."""
        known = self._names[name]
        known.give_up()
        known.path = path
        self._keep(name, known, look)

    def known(self) -> dict[str, Known]:
        """What a plan has to know of every name."""
        found: dict[str, Known] = {}
        for name, known in self._names.items():
            entry = self._catalog.get(name)
            leaving = entry is None or entry.state is ModelState.UNLOADING
            found[name] = Known(str(known.path.parent), known.served, known.attempted, leaving)
        return found

    def totals(self, entry: Entry) -> EngineStatistics:
        """What the engine has done for a name, all its versions together. It never falls."""
        return self._serving.totals(entry)

    def _start(self, operation: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(operation)
        self._operations.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._operations.discard(task)
        if not task.cancelled():
            task.exception()  # already in the index and the log; asked for, so that asyncio does not complain

    async def _load(self, name: str, known: _Name, changed: Collection[str] | None, *, final: bool) -> None:
        try:
            async with self._lock(name):
                entry = await self._begin(name, known.path)
                if known.served is not None and known.served == known.attempted:
                    self._keep(name, known, known.served)
                    return
                bundle = await self._read(entry, final=final)
                if bundle is None or not await self._serve(entry, bundle, changed, final=final):
                    raise BundleError([entry.reason])
        finally:
            if known.loading is asyncio.current_task():
                known.loading = None

    def _keep(self, name: str, known: _Name, look: Look) -> None:
        known.served, known.attempted, known.reported = look, None, ""
        entry = self._catalog.get(name)
        if entry is not None:
            self._catalog.kept(entry)

    async def _unload(self, name: str) -> None:
        known = self._names.get(name)
        if known is None:
            return
        known.give_up()
        async with self._lock(name):
            version, known.version, known.served = known.version, None, None
            entry = self._catalog.get(name)
            if entry is not None:
                self._catalog.unloading(entry)
                if version is not None:
                    retiring = self._retire(entry, version)
                    del version  # the last reference is the one that `_retire` drops
                    await retiring
                if known.ending:
                    await asyncio.wait(known.ending)
                self._catalog.remove(entry)
                _log.info("model unloaded", model=name)
            if known.loading is None:
                self._names.pop(name, None)

    async def _settle(self, entry: Entry, bundle: Bundle | None) -> None:
        progress, done = self.progress, 0

        def count() -> None:
            nonlocal done
            done += 1
            progress.programs_done += 1

        async with self._lock(entry.name):
            if bundle is not None and await self._serve(entry, bundle, on_program=count):
                if bundle.manifest.kind != "meta":
                    progress.settle(ready=True)
                return
        progress.settle(ready=False)
        if bundle is not None:
            # What a failed bundle left uncompiled is not left to do.
            progress.programs_total -= len(bundle.programs) - done

    async def _begin(self, name: str, path: Path, reason: str = "") -> Entry:
        internal = await asyncio.to_thread(declares_internal, path)
        self._names.setdefault(name, _Name(path))
        return self._catalog.begin(name, internal=internal, reason=reason)

    async def _read(self, entry: Entry, *, final: bool = True) -> Bundle | None:
        known = self._names[entry.name]
        try:
            if known.attempted is None:
                known.attempted = await self._pool.run(look_at, known.path)
            return await self._builder.read(known.path)
        except Exception as error:
            self._fail(entry, error, final=final)
            return None

    async def _serve(
        self,
        entry: Entry,
        bundle: Bundle,
        changed: Collection[str] | None = None,
        *,
        final: bool = True,
        on_program: Callable[[], None] = lambda: None,
    ) -> bool:
        started = self._clock.monotonic()
        known = self._names[entry.name]
        try:
            bundle, artifacts = await self._builder.inspect(bundle)
        except Exception as error:
            self._fail(entry, error, final=final)
            return False
        try:
            weights = known.same_weights(changed)
            version = await self._builder.build(bundle, artifacts, weights=weights, on_program=on_program)
        except Exception as error:
            self._fail(entry, error)
            return False
        try:
            await self._check_undisturbed(known)
        except BaseException as error:
            version.discard()
            if not isinstance(error, BundleError):
                raise
            self._fail(entry, error, final=final)
            return False
        if entry.state is ModelState.READY and (lacking := self._catalog.lacking(version.model.calls)):
            # The version that serves goes on until the models that the new one calls are there.
            self._catalog.failed(entry, f"its new version {lacking}")
            try:
                await self._catalog.wait_callable(version.model.calls)
            except asyncio.CancelledError:
                version.discard()
                raise
        self._put(entry, known, version)
        _log.info(
            "model ready",
            model=entry.name,
            programs=len(bundle.programs),
            weight_bytes=version.model.weight_bytes,
            seconds=round(self._clock.monotonic() - started, 3),
        )
        return True

    async def _check_undisturbed(self, known: _Name) -> None:
        """Raises BundleError when what was read can be a mix of two versions."""
        after = await self._pool.run(look_at, known.path)
        if known.attempted is not None and (file := disturbed(known.attempted, after)):
            raise BundleError([f"{file}: changed while the bundle was loading"])

    async def _retire(self, entry: Entry, version: Version) -> None:
        await self._serving.end(entry, version.model)
        programs = list(version.programs)
        del version
        await self._pool.run(release, programs)

    def _put(self, entry: Entry, known: _Name, version: Version) -> None:
        previous = known.version
        self._serving.begin(entry, version)
        known.version, known.served, known.attempted, known.reported = version, known.attempted, None, ""
        if previous is not None:
            task = self._start(self._retire(entry, previous))
            known.ending.add(task)
            task.add_done_callback(known.ending.discard)

    def _fail(self, entry: Entry, error: Exception, *, final: bool = True) -> None:
        known = self._names[entry.name]
        trace = None if isinstance(error, BundleError) else error
        reason = str(error) if trace is None else f"{type(error).__name__}: {error}"
        if reason != known.reported:
            known.reported = reason
            report = _log.error if final else _log.warning
            event = "model failed to load" if final else "bundle is not valid, waiting for it to change"
            report(event, model=entry.name, reason=reason, serves=entry.model is not None, exc_info=trace)
        self._catalog.failed(entry, reason, final=final)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())


async def _outcome(task: asyncio.Task[None]) -> None:
    """Waits for an operation, which goes on when nobody waits any more; raises what it raised."""
    await asyncio.wait({task})
    if task.cancelled():
        raise BundleError(["given up: the model was unloaded, or its files changed"])
    task.result()
