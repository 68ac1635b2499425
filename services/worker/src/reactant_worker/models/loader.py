"""From a bundle on disk to a model that serves, and back."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar, final

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.repository import Bundle, ProgramKey, read_bundle
from reactant_core.clock import Clock
from reactant_core.logs import get_logger
from reactant_policy.scheduling.scheduler import ModelTerms
from reactant_programs.artifact import Artifact, read_artifact
from reactant_programs.compile import Program, compile_artifact
from reactant_worker.device import Device
from reactant_worker.engine.batch import ProgramSet
from reactant_worker.engine.port import Engine, EngineStatistics
from reactant_worker.models.build import check_artifacts, check_hooks, describe, warm_up
from reactant_worker.models.catalog import Catalog, Entry
from reactant_worker.models.hooks import Hooks, load_hooks
from reactant_worker.models.progress import Progress
from reactant_worker.models.served import ServedModel
from reactant_worker.pool import WorkPool
from reactant_worker.weights.device import place
from reactant_worker.weights.host import HostSlab

_log = get_logger(__name__)
T = TypeVar("T")


@final
class Loader:
    """Loads and unloads models; the heavy steps run on `pool`, the bookkeeping on the event loop.

    An operation once begun is finished, whether or not the one who asked for it still waits.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        engine: Engine,
        device: asyncio.Future[Device],
        pool: WorkPool,
        clock: Clock,
        max_batch_size: Callable[[str], int | None] = lambda _model: None,
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._device = device
        self._pool = pool
        self._clock = clock
        self._max_batch_size = max_batch_size
        # A lock lives as long as somebody holds or awaits it.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._operations: set[asyncio.Task[None]] = set()
        self.progress = Progress(clock.monotonic())

    def announce(self, bundles: Mapping[str, Path]) -> None:
        """Makes the start-up set known, before anything of it is read: LOADING, not unknown."""
        self.progress.models_total = len(bundles)
        for name in sorted(bundles):
            self._catalog.begin(name)

    async def load_all(self, bundles: Mapping[str, Path]) -> None:
        """Settles the start-up set: each model ends READY or UNAVAILABLE, none stops the others."""
        entries = {name: self._catalog.begin(name) for name in sorted(bundles)}
        # All bundles are read before the first is compiled, so that the total is known early.
        read = await asyncio.gather(*(self._read(entries[name], bundles[name]) for name in entries))
        self.progress.programs_total = sum(len(b.programs) for b in read if b is not None)
        await asyncio.gather(
            *(self._settle(entry, bundle) for entry, bundle in zip(entries.values(), read, strict=True))
        )

    async def load(self, name: str, path: Path) -> None:
        """Loads or reloads one model; raises BundleError when it does not come to serve."""
        await self._finish(self._load(name, path))

    async def unload(self, name: str) -> None:
        """Refuses new requests, waits for those in flight, and forgets the model."""
        await self._finish(self._unload(name))

    async def _finish(self, operation: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(operation)
        self._operations.add(task)
        task.add_done_callback(self._ended)
        await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._operations.discard(task)
        if not task.cancelled():
            task.exception()  # already in the index and the log; asked for, so that asyncio does not complain

    async def _load(self, name: str, path: Path) -> None:
        async with self._lock(name):
            entry = self._catalog.begin(name)
            bundle = await self._read(entry, path)
            if bundle is None or not await self._serve(entry, bundle):
                raise BundleError([entry.reason])

    async def _unload(self, name: str) -> None:
        async with self._lock(name):
            entry = self._catalog.get(name)
            if entry is None:
                return
            model = entry.model
            self._catalog.unloading(entry)
            if model is not None:
                await self._retire(entry, model)
            self._catalog.remove(entry)
            _log.info("model unloaded", model=name)

    async def _settle(self, entry: Entry, bundle: Bundle | None) -> None:
        progress, done = self.progress, 0

        def count() -> None:
            nonlocal done
            done += 1
            progress.programs_done += 1

        async with self._lock(entry.name):
            if bundle is not None and await self._serve(entry, bundle, count):
                progress.models_ready += 1
                return
        progress.models_failed += 1
        if bundle is not None:
            # What a failed bundle left uncompiled is not left to do.
            progress.programs_total -= len(bundle.programs) - done

    async def _read(self, entry: Entry, path: Path) -> Bundle | None:
        try:
            return await self._pool.run(read_bundle, path)
        except Exception as error:
            self._fail(entry, error)
            return None

    async def _serve(
        self, entry: Entry, bundle: Bundle, on_program: Callable[[], None] = lambda: None
    ) -> bool:
        started = self._clock.monotonic()
        try:
            model, runnable, costs = await self._build(bundle, on_program)
        except Exception as error:
            self._fail(entry, error)
            return False
        limit = self._max_batch_size(model.name) or model.largest
        self._engine.attach(model.key, runnable, ModelTerms(model.sizes, bundle.manifest.batched, limit))
        for (variant, size), seconds in costs.items():
            self._engine.observe(model.key, variant, size, seconds)
        previous = self._catalog.ready(entry, model)
        _log.info(
            "model ready",
            model=model.name,
            programs=len(bundle.programs),
            weight_bytes=model.weight_bytes,
            seconds=round(self._clock.monotonic() - started, 3),
        )
        if previous is not None:
            await self._retire(entry, previous)
        return True

    async def _build(
        self, bundle: Bundle, on_program: Callable[[], None]
    ) -> tuple[ServedModel, ProgramSet, dict[tuple[int | None, int], float]]:
        if bundle.manifest.kind == "meta":
            raise BundleError(["kind: meta is not served by this version"])
        artifacts = await self._each(bundle, lambda key: read_artifact(bundle.programs[key]))
        bundle = check_artifacts(bundle, artifacts)
        programs, device = await self._compile(bundle, artifacts, on_program)
        slab = None if bundle.weights is None else await self._pool.run(HostSlab.load, bundle.weights)
        weights = () if slab is None else await self._pool.run(place, slab, device.jax)
        hooks = await self._load_hooks(bundle)
        try:
            check_hooks(bundle, hooks)
            model = describe(bundle, hooks, artifacts, 0 if slab is None else slab.nbytes)
            runnable = ProgramSet(model.executable_inputs, model.executable_outputs, programs, weights)
            return model, runnable, await self._pool.run(warm_up, model, runnable, self._clock)
        except BaseException:
            if hooks is not None:
                hooks.close()
            raise

    async def _compile(
        self, bundle: Bundle, artifacts: Mapping[ProgramKey, Artifact], on_program: Callable[[], None]
    ) -> tuple[dict[ProgramKey, Program], Device]:
        device = await asyncio.shield(self._device)  # one future for all: nobody may cancel it

        def compile_one(key: ProgramKey) -> Program:
            return compile_artifact(artifacts[key], device.jax)

        return await self._each(bundle, compile_one, on_program), device

    @staticmethod
    async def _load_hooks(bundle: Bundle) -> Hooks | None:
        if bundle.hooks is None:
            return None
        # A thread of its own: a `setup` that never returns must not keep other models from loading.
        own = WorkPool(1, f"setup-{bundle.name}")
        try:
            return await own.run(load_hooks, bundle)
        finally:
            own.close()

    async def _retire(self, entry: Entry, model: ServedModel) -> None:
        await entry.wait_released(model)
        done = self._engine.statistics(model.key)
        self._engine.detach(model.key)
        entry.retired = add(entry.retired, done)
        if model.hooks is not None:
            model.hooks.close()

    def _fail(self, entry: Entry, error: Exception) -> None:
        if isinstance(error, BundleError):
            reason = str(error)
            _log.error("model failed to load", model=entry.name, reason=reason)
        else:
            reason = f"{type(error).__name__}: {error}"
            _log.error("model failed to load", model=entry.name, reason=reason, exc_info=error)
        self._catalog.failed(entry, reason)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _each(
        self,
        bundle: Bundle,
        function: Callable[[ProgramKey], T],
        on_done: Callable[[], None] = lambda: None,
    ) -> dict[ProgramKey, T]:
        async def one(key: ProgramKey) -> T:
            result = await self._pool.run(function, key)
            on_done()
            return result

        keys = list(bundle.programs)
        return dict(zip(keys, await asyncio.gather(*(one(key) for key in keys)), strict=True))


def add(left: EngineStatistics, right: EngineStatistics) -> EngineStatistics:
    """Counters of two versions of one model together; the depth is the right one's."""
    return EngineStatistics(
        right.depth,
        left.dispatches + right.dispatches,
        left.requests + right.requests,
        left.rows + right.rows,
        left.compute_seconds + right.compute_seconds,
    )
