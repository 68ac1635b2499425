"""A model version's programs, run on batches: requests put together, answers taken apart."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import jax
import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.bundle.repository import ProgramKey
from reactant_programs.compile import Program
from reactant_worker.engine.port import Arrays
from reactant_worker.engine.staging import Slot

_IN_LAUNCH = 0.8
"""Share of its time that a program spends in its call, from which on it counts as run there."""


@final
@dataclass(slots=True)
class _Loaded:
    """A program, and what its batches share.

    Attributes:
        free: slots no batch owns; there come to be as many as were staged at once, and no more.
        runs_in_launch: XLA on CPU runs a program inside its call when it thinks it cheap, and it thinks so
            of a loop that turns a thousand times.
    """

    program: Program
    free: list[Slot] = field(default_factory=list)
    runs_in_launch: bool = False


@final
class ProgramSet:
    """Every compiled program of one model version over one set of device weights; a `Runnable`."""

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        programs: Mapping[ProgramKey, Program],
        weights: Sequence[jax.Array],
    ) -> None:
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._programs = {key: _Loaded(program) for key, program in programs.items()}
        self._weights = tuple(weights)
        self._has_batch_axis = any(key.batch is not None for key in self._programs)

    def stage(
        self, size: int, variant: int | None, requests: Sequence[Arrays], rows: Sequence[int]
    ) -> ProgramBatch:
        """See `Runnable.stage`."""
        key = ProgramKey(size if self._has_batch_axis else None, variant)
        loaded = self._programs[key]
        if len(requests) == 1 and (key.batch is None or rows[0] == size):
            # Nothing to put together: the request's own memory is the argument.
            return ProgramBatch(loaded, (*requests[0], *self._weights), self._outputs)
        slot = loaded.free.pop() if loaded.free else Slot(self._inputs, size, requests[0])
        slot.fill(requests, rows)
        return ProgramBatch(loaded, (*slot.arrays, *self._weights), self._outputs, rows, slot)

    def execute(
        self, size: int, variant: int | None, requests: Sequence[Arrays], rows: Sequence[int]
    ) -> tuple[list[Arrays], float]:
        """Runs one batch and blocks; returns the outputs of each request and the device's seconds."""
        batch = self.stage(size, variant, requests, rows)
        started = time.perf_counter()
        batch.launch()
        batch.wait()
        seconds = time.perf_counter() - started
        return batch.outputs(), seconds


@final
class ProgramBatch:
    """One call of a program; a `Batch`."""

    __slots__ = (
        "_arguments",
        "_host",
        "_launch_seconds",
        "_launched",
        "_loaded",
        "_results",
        "_rows",
        "_slot",
        "_specs",
    )

    def __init__(
        self,
        loaded: _Loaded,
        arguments: Sequence[NDArray[Any] | jax.Array],
        specs: Sequence[TensorSpec],
        rows: Sequence[int] | None = None,
        slot: Slot | None = None,
    ) -> None:
        """Args:
        loaded: the program.
        arguments: of its call.
        specs: of its outputs.
        rows: of each request; None: one request that fills the batch.
        slot: where the inputs lie, None: in the request's own memory.
        """
        self._loaded = loaded
        self._arguments = arguments
        self._specs = specs
        self._rows = rows
        self._slot = slot
        self._results: Sequence[jax.Array] = ()
        self._host: list[NDArray[Any]] = []
        self._launched = self._launch_seconds = 0.0

    @property
    def queues(self) -> bool:
        """See `Batch.queues`; on CPU there is nothing to move, and what is queued cannot be called back."""
        platform: str = self._loaded.program.device.platform
        return platform != "cpu"

    @property
    def runs_in_launch(self) -> bool:
        """See `Batch.runs_in_launch`."""
        return self._loaded.runs_in_launch

    def launch(self) -> None:
        """See `Batch.launch`."""
        self._launched = time.perf_counter()
        self._results = self._loaded.program(*self._arguments)
        if self.queues:
            for result in self._results:
                result.copy_to_host_async()
        self._launch_seconds = time.perf_counter() - self._launched

    def wait(self) -> None:
        """See `Batch.wait`."""
        # Each conversion sleeps in XLA, without the GIL, until that result is there.
        self._host = [np.asarray(result) for result in self._results]
        seconds = time.perf_counter() - self._launched
        self._loaded.runs_in_launch = not self.queues and self._launch_seconds > _IN_LAUNCH * seconds
        # Only now: a program on CPU reads the slot in place. After a failure nobody knows what still
        # reads it, and it is left to JAX, which holds it as long as it has to.
        self._free_slot()

    def outputs(self) -> list[Arrays]:
        """See `Batch.outputs`."""
        if self._rows is None:
            return [tuple(self._host)]
        outputs: list[Arrays] = []
        pairs = [(array, spec.batch_axis) for spec, array in zip(self._specs, self._host, strict=True)]
        start = 0
        for count in self._rows:
            window = slice(start, start + count)
            # A list, and the first axis by itself: it is done for every request.
            outputs.append(
                tuple(
                    [
                        array[window] if axis == 0 else array if axis is None else _cut(array, axis, window)
                        for array, axis in pairs
                    ]
                )
            )
            start += count
        return outputs

    def discard(self) -> None:
        """See `Batch.discard`."""
        self._free_slot()

    def _free_slot(self) -> None:
        if self._slot is not None:
            self._loaded.free.append(self._slot)
            self._slot = None


def _cut(array: NDArray[Any], axis: int, window: slice) -> NDArray[Any]:
    return array[(slice(None),) * axis + (window,)]
