"""From a bundle on disk to a model that serves, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TypeVar, final

import jax

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
from reactant_worker.models.build import check_artifacts, describe, warm_up
from reactant_worker.models.catalog import Catalog, Entry
from reactant_worker.models.hooks import load_hooks
from reactant_worker.models.progress import Progress
from reactant_worker.models.served import ServedModel
from reactant_worker.weights.device import place
from reactant_worker.weights.host import HostSlab

_log = get_logger(__name__)
T = TypeVar("T")


@final
class Loader:
    """Loads and unloads models; the heavy steps run on `pool`, the bookkeeping on the event loop."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        engine: Engine,
        device: Awaitable[Device],
        pool: Executor,
        clock: Clock,
        max_batch_size: Callable[[str], int | None] = lambda _model: None,
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._device = device
        self._pool = pool
        self._clock = clock
        self._max_batch_size = max_batch_size
        self._locks: dict[str, asyncio.Lock] = {}
        self.progress = Progress(clock.monotonic())

    async def load_all(self, bundles: Mapping[str, Path]) -> None:
        """Settles the start-up set: each model ends READY or UNAVAILABLE, none stops the others."""
        self.progress.models_total = len(bundles)
        entries = {name: self._catalog.begin(name) for name in sorted(bundles)}
        # All bundles are read before the first is compiled, so that the total is known early.
        read = await asyncio.gather(*(self._read(entries[name], bundles[name]) for name in entries))
        self.progress.programs_total = sum(len(b.programs) for b in read if b is not None)
        await asyncio.gather(
            *(self._settle(entry, bundle) for entry, bundle in zip(entries.values(), read, strict=True))
        )

    async def load(self, name: str, path: Path) -> None:
        """Loads or reloads one model; raises BundleError when it does not come to serve."""
        async with self._lock(name):
            entry = self._catalog.begin(name)
            bundle = await self._read(entry, path)
            if bundle is None or not await self._serve(entry, bundle):
                raise BundleError([entry.reason])

    async def unload(self, name: str) -> None:
        """Refuses new requests, waits for those in flight, and forgets the model."""
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
        async with self._lock(entry.name):
            if bundle is not None and await self._serve(entry, bundle):
                self.progress.models_ready += 1
            else:
                self.progress.models_failed += 1

    async def _read(self, entry: Entry, path: Path) -> Bundle | None:
        try:
            return await self._in_pool(read_bundle, path)
        except Exception as error:
            self._fail(entry, error)
            return None

    async def _serve(self, entry: Entry, bundle: Bundle) -> bool:
        started = self._clock.monotonic()
        try:
            model, runnable = await self._build(bundle)
            costs = await self._in_pool(warm_up, model, runnable, self._clock)
        except Exception as error:
            self._fail(entry, error)
            return False
        limit = self._max_batch_size(model.name) or model.largest
        coalesces = bundle.manifest.batched
        self._engine.attach(model.key, runnable, ModelTerms(model.sizes, coalesces, limit))
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

    async def _build(self, bundle: Bundle) -> tuple[ServedModel, ProgramSet]:
        if bundle.manifest.kind == "meta":
            raise BundleError(["kind: meta is not served by this version"])
        keys = list(bundle.programs)
        read = await self._each(lambda key: read_artifact(bundle.programs[key]), keys)
        artifacts = dict(zip(keys, read, strict=True))
        bundle = check_artifacts(bundle, artifacts)
        device = (await self._device).jax
        programs = await self._each(partial(self._compile, artifacts, device), keys)
        slab = None
        if bundle.weights is not None:
            slab = await self._in_pool(HostSlab.load, bundle.weights)
        weights = () if slab is None else await self._in_pool(place, slab, device)
        hooks = await self._in_pool(load_hooks, bundle)
        model = describe(bundle, hooks, artifacts, 0 if slab is None else slab.nbytes)
        runnable = ProgramSet(
            model.executable_inputs,
            model.executable_outputs,
            dict(zip(keys, programs, strict=True)),
            weights,
        )
        return model, runnable

    def _compile(
        self, artifacts: Mapping[ProgramKey, Artifact], device: jax.Device, key: ProgramKey
    ) -> Program:
        program = compile_artifact(artifacts[key], device)
        self.progress.programs_done += 1
        return program

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

    async def _in_pool(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *arguments))

    async def _each(self, function: Callable[[ProgramKey], T], keys: Sequence[ProgramKey]) -> list[T]:
        return await asyncio.gather(*(self._in_pool(function, key) for key in keys))


def add(left: EngineStatistics, right: EngineStatistics) -> EngineStatistics:
    """Counters of two versions of one model together; the depth is the right one's."""
    return EngineStatistics(
        right.depth,
        left.dispatches + right.dispatches,
        left.requests + right.requests,
        left.rows + right.rows,
        left.compute_seconds + right.compute_seconds,
    )
