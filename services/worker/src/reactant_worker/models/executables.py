"""Compiled programs in use, by their contents."""

from __future__ import annotations

import asyncio
import weakref
from functools import partial
from typing import final

from reactant_programs.artifact import Artifact
from reactant_programs.compile import Program, compile_artifact
from reactant_worker.device import Device
from reactant_worker.pool import WorkPool


@final
class Executables:
    """Compiles each program once, however many models and versions run it; weights are its arguments.

    A program lives as long as somebody uses it. Used on the event loop only.

    Attributes:
        serving: models serve meanwhile. On a CPU a child process then compiles, see `compile_artifact`;
            before that it would only cost the start of one.
    """

    def __init__(self, pool: WorkPool, beside: WorkPool) -> None:
        """`pool` compiles; the threads of `beside` wait for the child and load what comes of it."""
        self.serving = True
        self._pool = pool
        self._beside = beside
        self._programs: weakref.WeakValueDictionary[str, Program] = weakref.WeakValueDictionary()
        self._compiling: dict[str, asyncio.Task[Program]] = {}

    async def get(self, artifact: Artifact, device: Device) -> Program:
        """The program of an artifact, compiled for the one device there is; raises BundleError.

        Who stops waiting does not stop the compilation: others may wait for it too.
        """
        program = self._programs.get(artifact.digest)
        if program is not None:
            return program
        task = self._compiling.get(artifact.digest)
        if task is None:
            task = asyncio.create_task(self._compile(artifact, device))
            self._compiling[artifact.digest] = task
            task.add_done_callback(_asked_for)
        return await asyncio.shield(task)

    async def _compile(self, artifact: Artifact, device: Device) -> Program:
        try:
            if self.serving and device.kind == "cpu":
                program = await self._beside.run(partial(compile_artifact, beside=True), artifact, device.jax)
            else:
                program = await self._pool.run(compile_artifact, artifact, device.jax)
        finally:
            del self._compiling[artifact.digest]
        self._programs[artifact.digest] = program
        return program


def _asked_for(task: asyncio.Task[Program]) -> None:
    """Asyncio complains of an error that nobody has asked for, as when all who waited have left."""
    if not task.cancelled():
        task.exception()
