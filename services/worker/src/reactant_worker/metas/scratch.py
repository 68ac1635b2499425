"""Buffers that metas use again and again."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reactant_worker.engine.staging import allocate
from reactant_worker.models.hooks import RequestOver

_SMALLEST_BYTES = 4096

Buffer = NDArray[np.uint8]


@final
class ScratchPool:
    """Idle buffers by size, at most `limit_bytes` of them together; what is over is freed. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._idle: dict[int, list[Buffer]] = {}
        self._lock = threading.Lock()
        self.idle_bytes = 0

    def take(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes`, aligned for the device; its values are whatever they are."""
        # Powers of two, so that requests of slightly different shapes share buffers.
        size = max(_SMALLEST_BYTES, 1 << max(nbytes - 1, 0).bit_length())
        with self._lock:
            idle = self._idle.get(size)
            if idle:
                self.idle_bytes -= size
                return idle.pop()
        return allocate((size,), np.dtype(np.uint8))

    def put(self, buffers: Sequence[Buffer]) -> None:
        """Takes back buffers that nobody uses any more."""
        with self._lock:
            for buffer in buffers:
                if self.idle_bytes + buffer.nbytes <= self._limit:
                    self._idle.setdefault(buffer.nbytes, []).append(buffer)
                    self.idle_bytes += buffer.nbytes


@final
class Lease:
    """The buffers of one request. They go back when the last of its users has left. Thread-safe.

    The request is a user until its answer is encoded, which may hold a buffer; the thread of the meta is
    one while it runs, also when nobody waits for the answer any more.
    """

    def __init__(self, pool: ScratchPool) -> None:
        self._pool = pool
        self._buffers: list[Buffer] = []
        self._users = 1
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Adds a user; False when the last one has left."""
        with self._lock:
            if not self._users:
                return False
            self._users += 1
            return True

    def leave(self) -> None:
        """Ends one user's use."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            buffers, self._buffers = self._buffers, []
        self._pool.put(buffers)

    def array(self, shape: Iterable[SupportsIndex] | SupportsIndex, dtype: DTypeLike) -> NDArray[Any]:
        """An array in a pooled buffer; its values are whatever they are.

        Raises ValueError for a negative size, TypeError for a dtype that has no fixed size, RequestOver
        when the last user has left.
        """
        kind = np.dtype(dtype)
        if kind.hasobject or not kind.itemsize:
            raise TypeError(f"scratch takes a dtype of a fixed size, not {kind}")
        sizes = tuple(map(operator.index, shape)) if isinstance(shape, Iterable) else (operator.index(shape),)
        if any(size < 0 for size in sizes):
            raise ValueError(f"scratch takes sizes of 0 or more, not {list(sizes)}")
        nbytes = math.prod(sizes) * kind.itemsize
        buffer = self._pool.take(nbytes)
        with self._lock:
            if self._users:
                self._buffers.append(buffer)
                return buffer[:nbytes].view(kind).reshape(sizes)
        self._pool.put([buffer])
        raise RequestOver
