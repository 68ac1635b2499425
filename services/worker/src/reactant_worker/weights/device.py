"""The device copy of a weight set."""

from __future__ import annotations

import jax

from reactant_worker.weights.host import HostSlab


def place(slab: HostSlab, device: jax.Device) -> tuple[jax.Array, ...]:
    """Transfers every tensor and waits for it; on CPU the arrays alias the slab."""
    placed = jax.device_put(list(slab.arrays), device)
    return tuple(array.block_until_ready() for array in placed)
