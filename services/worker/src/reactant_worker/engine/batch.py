"""Putting requests together along the batch axis and taking the answers apart."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax
import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.bundle.repository import ProgramKey
from reactant_programs.compile import Program
from reactant_worker.engine.port import Arrays, ExecutionTimes


@final
@dataclass(slots=True)
class _Slot:
    """Staging memory of one program: a host array per input, and how many rows are not zero."""

    buffers: list[NDArray[Any]]
    filled: int = 0


@final
class ProgramSet:
    """Every compiled program of one model version over one set of device weights.

    `execute` is called by one thread at a time (the loader's, then the dispatcher's): a slot is
    rewritten only after the outputs of its last dispatch are ready, because on CPU the program may read
    the staging memory in place.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        programs: Mapping[ProgramKey, Program],
        weights: Sequence[jax.Array],
    ) -> None:
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._programs = dict(programs)
        self._weights = tuple(weights)
        self._slots: dict[ProgramKey, _Slot] = {}
        self._has_batch_axis = any(key.batch is not None for key in self._programs)

    def execute(
        self, size: int, variant: int | None, requests: Sequence[Arrays], rows: Sequence[int]
    ) -> tuple[list[Arrays], ExecutionTimes]:
        """See `Runnable.execute`."""
        started = time.perf_counter()
        key = ProgramKey(size if self._has_batch_axis else None, variant)
        program = self._programs[key]
        arguments = self._assemble(key, size, requests, rows)
        assembled = time.perf_counter()
        results = program(*arguments, *self._weights)
        host = [np.asarray(result) for result in results]
        computed = time.perf_counter()
        whole = len(requests) == 1 and rows[0] == size
        outputs = [tuple(host)] if whole else self._slice(host, rows)
        done = time.perf_counter()
        return outputs, ExecutionTimes(assembled - started, computed - assembled, done - computed)

    def _assemble(
        self, key: ProgramKey, size: int, requests: Sequence[Arrays], rows: Sequence[int]
    ) -> Sequence[NDArray[Any]]:
        if len(requests) == 1 and (key.batch is None or rows[0] == size):
            # Nothing to put together: the request's own memory is the argument.
            return requests[0]
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = _Slot(
                [self._staging(i, size, requests) for i in range(len(self._inputs))]
            )
        total = sum(rows)
        for i, (spec, buffer) in enumerate(zip(self._inputs, slot.buffers, strict=True)):
            axis = spec.batch_axis
            if axis is None:
                buffer[...] = requests[0][i]
                continue
            lanes = np.moveaxis(buffer, axis, 0) if axis else buffer
            start = 0
            for request, count in zip(requests, rows, strict=True):
                array = request[i]
                lanes[start : start + count] = np.moveaxis(array, axis, 0) if axis else array
                start += count
            if total < slot.filled:
                lanes[total : slot.filled] = 0
        slot.filled = total
        return slot.buffers

    def _staging(self, index: int, size: int, requests: Sequence[Arrays]) -> NDArray[Any]:
        spec, sample = self._inputs[index], requests[0][index]
        shape = list(sample.shape)
        if spec.batch_axis is not None:
            shape[spec.batch_axis] = size
        return aligned_zeros(tuple(shape), sample.dtype)

    def _slice(self, host: Sequence[NDArray[Any]], rows: Sequence[int]) -> list[Arrays]:
        outputs: list[Arrays] = []
        start = 0
        for count in rows:
            window = slice(start, start + count)
            outputs.append(
                tuple(
                    array if spec.batch_axis is None else array[(slice(None),) * spec.batch_axis + (window,)]
                    for spec, array in zip(self._outputs, host, strict=True)
                )
            )
            start += count
        return outputs


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any], alignment: int = 64) -> NDArray[Any]:
    """Zeros whose first byte lies on a multiple of `alignment`, so that XLA on CPU reads them in place."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.zeros(count * dtype.itemsize + alignment, np.uint8)
    offset = -raw.ctypes.data % alignment
    return raw[offset : offset + count * dtype.itemsize].view(dtype).reshape(shape)
