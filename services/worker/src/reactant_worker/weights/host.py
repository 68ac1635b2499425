"""The host copy of a weight set: one contiguous, read-only slab."""

from __future__ import annotations

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

    Attributes:
        arrays: tensors in argument order, read-only views of the slab.
        nbytes: bytes of all tensors together, alignment gaps not counted.
    """

    __slots__ = ("arrays", "nbytes")

    def __init__(self, arrays: tuple[NDArray[Any], ...], nbytes: int) -> None:
        self.arrays = arrays
        self.nbytes = nbytes

    @classmethod
    def load(cls, weights: WeightSet) -> HostSlab:
        """Reads the whole weight set; raises BundleError when the file changed since it was checked."""
        tensors = [weights.tensors[name] for name in weights.argument_order]
        offsets: list[int] = []
        end = 0
        for tensor in tensors:
            start = -(-end // ALIGNMENT) * ALIGNMENT
            offsets.append(start)
            end = start + tensor.nbytes
        memory = np.empty(end + ALIGNMENT, np.uint8)
        base = -memory.ctypes.data % ALIGNMENT
        windows = [
            memory[base + offset : base + offset + tensor.nbytes]
            for tensor, offset in zip(tensors, offsets, strict=True)
        ]
        weights.read_into((t.name, w.data) for t, w in zip(tensors, windows, strict=True))
        arrays = tuple(w.view(t.dtype).reshape(t.shape) for t, w in zip(tensors, windows, strict=True))
        for array in arrays:
            array.flags.writeable = False
        return cls(arrays, weights.nbytes)
