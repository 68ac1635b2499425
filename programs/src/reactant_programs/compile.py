"""Compiles an artifact ahead of time for one device, and calls it."""

from __future__ import annotations

import atexit
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.signature import Signature
from reactant_programs.artifact import Artifact
from reactant_programs.beside import CompilerChild, CompilerCrash
from reactant_programs.cache import asking, cache_directory
from reactant_programs.element_types import NUMPY_TYPES
from reactant_programs.exported import lowering_platform, rebuild


@final
@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes on the device that one execution needs, as the compiler planned them.

    Attributes:
        temp_bytes: scratch, held while it runs.
        argument_bytes: inputs and weights together.
        output_bytes: all results.
        code_bytes: the program itself (0 where the backend does not say).
    """

    temp_bytes: int
    argument_bytes: int
    output_bytes: int
    code_bytes: int


@final
class Program:
    """A compiled program on its device; safe to call from many threads."""

    __slots__ = ("__weakref__", "_compiled", "build_seconds", "device", "memory", "signature")

    def __init__(
        self,
        compiled: jax.stages.Compiled,
        *,
        device: jax.Device,
        signature: Signature,
        memory: MemoryUse,
        build_seconds: float,
    ) -> None:
        self._compiled = compiled
        self.device = device
        self.signature = signature
        self.memory = memory
        self.build_seconds = build_seconds

    def __call__(self, *arrays: jax.Array | np.ndarray[Any, Any]) -> tuple[jax.Array, ...]:
        """Dispatches one execution and returns before it is done; no argument is ever overwritten.

        Args:
            arrays: inputs in manifest order, then weights in argument order; shapes and dtypes exactly as
                in `signature`. A numpy array is copied to the device (aliased on CPU when aligned, so it
                must not change until the results are ready).

        Returns:
            One array per result; errors of the execution itself surface when they are read.

        Raises:
            TypeError: wrong number of arrays, or a wrong shape or dtype.
        """
        # Measured on CPU, FP32[1,16] through two layers, jax 0.10.2, best of 5 (µs a call): this, the C++
        # dispatch of an AOT-compiled function, 22 with device arrays and 32 with a numpy input;
        # Compiled's unsafe_call 89; LoadedExecutable.execute 33; execute_sharded 15, but 85 against 70 for
        # this once its results are unpacked to arrays; jax.device_put before the call adds 140. Each weight
        # adds about 0.5, since the dispatch looks at every argument: 60 for 100 weights.
        outputs: tuple[jax.Array, ...] = self._compiled(*arrays)
        return outputs


_SMALL_BYTES: Final = 1024
"""A program of so few operations is compiled in less time than the child takes to start."""

_child = CompilerChild()
atexit.register(_child.close)


def compile_artifact(artifact: Artifact, device: jax.Device, *, beside: bool = False) -> Program:
    """Compiles for `device`, or loads the executable from the cache; safe to call from many threads.

    Args:
        artifact: the program.
        device: what it will run on.
        beside: what the cache does not hold is compiled in a child process, so that this one's interpreter
            stays free meanwhile. On CPUs only, only with a cache, and no program of a few operations: these
            are compiled here, and so is, with a warning, what the child fails to compile.

    Raises:
        BundleError: naming the file: XLA refuses the program, it is for other platforms, or an argument or
            result has an element type that cannot be passed; or it crashes the compiler in the child.
    """
    begun = time.monotonic()
    platform = lowering_platform(device)
    _check(artifact, platform)
    function = rebuild(
        artifact.portable,
        [(argument.dtype, argument.shape) for argument in artifact.signature.arguments],
        [(result.dtype, result.shape) for result in artifact.signature.results],
        artifact.platforms,
        lapack=any(target.startswith("lapack_") for target in artifact.custom_calls),
    )
    sharding = SingleDeviceSharding(device)
    avals = [
        jax.ShapeDtypeStruct(argument.shape, NUMPY_TYPES[argument.dtype], sharding=sharding)  # type: ignore[no-untyped-call]
        for argument in artifact.signature.arguments
    ]
    try:
        lowered = jax.jit(function, out_shardings=sharding).lower(*avals)
        with _compiler(artifact, device) if beside else nullcontext():
            compiled = lowered.compile()
        memory = _memory_use(compiled)
    except CompilerCrash as error:
        raise BundleError(f"{artifact.path.name}: {error}") from error
    except Exception as error:
        # XLA reports what it dislikes in a program by several exception types, ValueError among them.
        text = " ".join(str(error).split())[:600]
        raise BundleError(f"{artifact.path.name}: does not compile for {platform}: {text}") from error
    return Program(
        compiled,
        device=device,
        signature=artifact.signature,
        memory=memory,
        build_seconds=time.monotonic() - begun,
    )


def _compiler(artifact: Artifact, device: jax.Device) -> AbstractContextManager[None]:
    """Where this thread compiles what it does not find.

    A child with a GPU would need memory there for its context and for tuning, out of what models have.
    """
    directory = cache_directory()
    if directory is None or device.platform != "cpu" or len(artifact.portable) < _SMALL_BYTES:
        return nullcontext()
    return asking(partial(_child.build, artifact, directory))


def _check(artifact: Artifact, platform: str) -> None:
    name, faults = artifact.path.name, []
    if artifact.platforms and platform not in artifact.platforms:
        faults.append(f"{name}: was exported for {', '.join(artifact.platforms)}; this device is {platform}")
    kinds = ("argument", artifact.signature.arguments), ("result", artifact.signature.results)
    for what, types in kinds:
        for index, tensor in enumerate(types):
            if tensor.dtype not in NUMPY_TYPES:
                accepted = ", ".join(NUMPY_TYPES)
                faults.append(
                    f"{name}: {what} {index} has element type {tensor.dtype}; accepted are {accepted}"
                )
    if faults:
        raise BundleError(faults)


def _memory_use(compiled: jax.stages.Compiled) -> MemoryUse:
    analysis = compiled.memory_analysis()
    return MemoryUse(
        temp_bytes=int(getattr(analysis, "temp_size_in_bytes", 0)),
        argument_bytes=int(getattr(analysis, "argument_size_in_bytes", 0)),
        output_bytes=int(getattr(analysis, "output_size_in_bytes", 0)),
        code_bytes=int(getattr(analysis, "generated_code_size_in_bytes", 0)),
    )
