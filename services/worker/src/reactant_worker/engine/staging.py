"""Host memory that batches are put together in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_worker.engine.port import Arrays

ALIGNMENT = 64
"""XLA on CPU reads arrays that start on such a multiple in place."""


@final
class Slot:
    """One host array per input of a program at one compiled size.

    The device may read the arrays until the outputs of the dispatch are ready, so a slot belongs to
    that dispatch until then.
    """

    __slots__ = ("_filled", "_inputs", "arrays")

    def __init__(self, inputs: Sequence[TensorSpec], size: int, sample: Arrays) -> None:
        """Room for `size` rows of inputs shaped as in `sample`, the batch axis aside."""
        self._inputs = inputs
        self._filled = 0
        self.arrays = tuple(
            allocate(
                tuple(size if axis == spec.batch_axis else dim for axis, dim in enumerate(array.shape)),
                array.dtype,
            )
            for spec, array in zip(inputs, sample, strict=True)
        )

    def fill(self, requests: Sequence[Arrays], rows: Sequence[int]) -> None:
        """Writes the rows of all requests one after the other; the rest is zeros."""
        total = sum(rows)
        for index, (spec, array) in enumerate(zip(self._inputs, self.arrays, strict=True)):
            if spec.batch_axis is None:
                array[...] = requests[0][index]
                continue
            lanes = _batch_first(array, spec.batch_axis)
            # One call for all of them, which is two thirds of the price of as many assignments.
            np.concatenate(
                [_batch_first(request[index], spec.batch_axis) for request in requests], out=lanes[:total]
            )
            if total < self._filled:
                lanes[total : self._filled] = 0
        self._filled = total


def _batch_first(array: NDArray[Any], axis: int) -> NDArray[Any]:
    return np.moveaxis(array, axis, 0) if axis else array


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros that start on a multiple of `ALIGNMENT`; the one place where staging memory comes from."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT
    return raw[offset : offset + nbytes].view(dtype).reshape(shape)
