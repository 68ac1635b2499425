"""From a bundle on disk to a version that is ready to serve."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar, final

from reactant_core.bundle.repository import Bundle, ProgramKey, read_bundle
from reactant_core.bundle.weights import WeightSet
from reactant_core.clock import Clock
from reactant_programs.artifact import Artifact, read_artifact
from reactant_programs.compile import Program
from reactant_worker.device import Device
from reactant_worker.engine.batch import ProgramSet
from reactant_worker.models.build import check_artifacts, check_hooks, describe, describe_meta, warm_up
from reactant_worker.models.executables import Executables
from reactant_worker.models.setup import load_beside
from reactant_worker.models.version import PlacedWeights, Version
from reactant_worker.pool import WorkPool
from reactant_worker.weights.device import place
from reactant_worker.weights.host import HostSlab

T = TypeVar("T")


@final
class Builder:
    """The steps of a load, in order: `read`, `inspect`, `build`. The heavy parts run on the pools.

    A step that is cancelled lets the call that a thread is in go on and discards what comes of it.
    """

    def __init__(
        self,
        *,
        device: asyncio.Future[Device],
        pool: WorkPool,
        compile_pool: WorkPool,
        beside_pool: WorkPool,
        clock: Clock,
    ) -> None:
        self._device = device
        self._pool = pool
        self._clock = clock
        self.executables = Executables(compile_pool, beside_pool)

    async def read(self, path: Path) -> Bundle:
        """Reads and checks what is on disk; raises BundleError."""
        return await self._pool.run(read_bundle, path)

    async def inspect(self, bundle: Bundle) -> tuple[Bundle, Mapping[ProgramKey, Artifact]]:
        """Reads the programs and compares them with manifest and weights; compiles nothing.

        Returns the bundle with its weights oriented as the programs take them. Raises BundleError.
        """
        if bundle.manifest.kind == "meta":
            return bundle, {}
        artifacts = await _each(bundle, lambda key: self._pool.run(read_artifact, bundle.programs[key]))
        return check_artifacts(bundle, artifacts), artifacts

    async def build(
        self,
        bundle: Bundle,
        artifacts: Mapping[ProgramKey, Artifact],
        *,
        weights: PlacedWeights | None = None,
        on_program: Callable[[], None] = lambda: None,
    ) -> Version:
        """Compiles, places the weights, loads the hooks and runs the programs once.

        Args:
            bundle: as `inspect` gave it.
            artifacts: likewise.
            weights: those of a version that has the same weight file, to be used again.
            on_program: called for each program that is compiled.

        Raises:
            Exception: BundleError, or whatever the hooks raised.
        """
        if bundle.manifest.kind == "meta":
            return await self._build_meta(bundle)
        device = await asyncio.shield(self._device)  # one future for all: nobody may cancel it
        programs = await self._compile(bundle, artifacts, device, on_program)
        placed = await self._place(bundle.weights, weights, device)
        hooks = await load_beside(bundle)
        try:
            check_hooks(bundle, hooks)
            model = describe(bundle, hooks, artifacts, 0 if placed is None else placed.nbytes)
            arrays = () if placed is None else placed.arrays
            runnable = ProgramSet(model.executable_inputs, model.executable_outputs, programs, arrays)
            costs = await self._pool.run(warm_up, model, runnable, self._clock)
        except BaseException:
            if hooks is not None:
                hooks.close()
            raise
        return Version(model, runnable, tuple(programs.values()), costs, placed)

    async def _build_meta(self, bundle: Bundle) -> Version:
        hooks = await load_beside(bundle)
        try:
            check_hooks(bundle, hooks)
        except BaseException:
            if hooks is not None:
                hooks.close()
            raise
        return Version(describe_meta(bundle, hooks), None, (), {}, None)

    async def _compile(
        self,
        bundle: Bundle,
        artifacts: Mapping[ProgramKey, Artifact],
        device: Device,
        on_program: Callable[[], None],
    ) -> dict[ProgramKey, Program]:
        async def one(key: ProgramKey) -> Program:
            program = await self.executables.get(artifacts[key], device)
            on_program()
            return program

        return await _each(bundle, one)

    async def _place(
        self, weights: WeightSet | None, placed: PlacedWeights | None, device: Device
    ) -> PlacedWeights | None:
        if weights is None:
            return None
        if placed is not None and placed.axes_reversed == weights.axes_reversed:
            return placed
        slab = await self._pool.run(HostSlab.load, weights)
        arrays = await self._pool.run(place, slab, device.jax)
        return PlacedWeights(arrays, slab.nbytes, weights.axes_reversed)


async def _each(bundle: Bundle, function: Callable[[ProgramKey], Awaitable[T]]) -> dict[ProgramKey, T]:
    keys = list(bundle.programs)
    return dict(zip(keys, await asyncio.gather(*map(function, keys)), strict=True))
