"""The host copy of a weight set: one contiguous, read-only slab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.weights import WeightSet

ALIGNMENT = 64
"""Every tensor starts on such a multiple, so that XLA on CPU reads it in place."""


@final
class HostSlab:
    """Private memory with a copy of every tensor.

    Copied out of the file on purpose: mapped pages of a bundle that is truncated or replaced while
    it serves would raise SIGBUS or mix two versions.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]], nbytes: int) -> None:
        self.arrays = tuple(arrays)
        self.nbytes = nbytes

    @classmethod
    def load(cls, weights: WeightSet) -> HostSlab:
        """Reads the whole weight set, tensors in argument order."""
        sources = weights.arrays()
        offsets: list[int] = []
        end = 0
        for source in sources:
            start = -(-end // ALIGNMENT) * ALIGNMENT
            offsets.append(start)
            end = start + source.nbytes
        memory = np.empty(end + ALIGNMENT, np.uint8)
        base = -memory.ctypes.data % ALIGNMENT
        arrays: list[NDArray[Any]] = []
        for source, offset in zip(sources, offsets, strict=True):
            window = memory[base + offset : base + offset + source.nbytes]
            array = window.view(source.dtype).reshape(source.shape)
            array[...] = source
            array.flags.writeable = False
            arrays.append(array)
        return cls(arrays, end)
