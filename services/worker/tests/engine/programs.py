"""Program sets of functions compiled in the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from reactant_core.bundle.dtypes import BY_TOKEN
from reactant_core.bundle.manifest import TensorSpec
from reactant_core.bundle.repository import ProgramKey
from reactant_core.bundle.signature import Signature
from reactant_programs.compile import MemoryUse, Program
from reactant_worker.engine.batch import ProgramSet

Function = Callable[..., tuple[Any, ...]]


def spec(name: str, dims: Sequence[int], batch_axis: int | None = 0) -> TensorSpec:
    """An f32 tensor; the batch axis is written -1."""
    axes = "".join("n" if axis == batch_axis else "abcd"[axis] for axis in range(len(dims)))
    return TensorSpec(name, BY_TOKEN["f32"], axes, tuple(dims), batch_axis)


def program_set(
    function: Function, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], sizes: Sequence[int]
) -> ProgramSet:
    """`function` compiled at every size, for a GPU where there is one; it has no weights."""
    device = jax.devices()[0]
    sharding = SingleDeviceSharding(device)
    programs = {}
    for size in sizes:
        arguments = [
            jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
                [size if axis == tensor.batch_axis else dim for axis, dim in enumerate(tensor.dims)],
                np.float32,
            )
            for tensor in inputs
        ]
        programs[ProgramKey(size, None)] = Program(
            jax.jit(function, out_shardings=sharding).lower(*arguments).compile(),
            device=device,
            signature=Signature((), ()),
            memory=MemoryUse(0, 0, 0, 0),
            build_seconds=0.0,
        )
    return ProgramSet(inputs, outputs, programs, ())
