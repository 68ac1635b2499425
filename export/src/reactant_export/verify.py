"""Reads a bundle as a server does, runs its programs, and reports what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import jax
import numpy as np

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.manifest import Manifest, concrete_shape
from reactant_core.bundle.repository import Bundle, ProgramKey, read_bundle
from reactant_core.bundle.signature import check_signature
from reactant_export.hook_source import HookSource, inspect_hooks
from reactant_export.samples import Array, random_array
from reactant_programs.artifact import Artifact, read_artifact
from reactant_programs.compile import MemoryUse, compile_artifact


@final
@dataclass(frozen=True, slots=True)
class ProgramReport:
    """One program file.

    Attributes:
        file: its name.
        key: what it was compiled for.
        size: bytes of the file.
        stablehlo_version: what it was written for; "" for MLIR text.
        custom_calls: native code it calls.
        platforms: names when it chooses by platform, else empty: it is one and the same everywhere.
        memory: what the compiler planned; None when it was not compiled.
    """

    file: str
    key: ProgramKey
    size: int
    stablehlo_version: str
    custom_calls: tuple[str, ...]
    platforms: tuple[str, ...]
    memory: MemoryUse | None


@final
@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One execution of one program on random inputs; outputs in manifest order."""

    file: str
    key: ProgramKey
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


@final
@dataclass(frozen=True, slots=True)
class Report:
    """What a bundle holds.

    Attributes:
        name: the model's.
        faults: every fault found; a bundle without any can be served.
        manifest: None when it cannot be read, and then all below is empty.
        programs: those that could be read, in manifest order.
        weights: number of weight tensors.
        weight_bytes: their size together.
        hooks: names `model.py` defines that a server calls.
        assets: other files and directories.
    """

    name: str
    faults: tuple[str, ...]
    manifest: Manifest | None = None
    programs: tuple[ProgramReport, ...] = ()
    weights: int = 0
    weight_bytes: int = 0
    hooks: tuple[str, ...] = ()
    assets: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.faults


def verify_bundle(
    path: Path | str,
    *,
    execute: bool = True,
    device: jax.Device | None = None,
    after_run: Callable[[ProgramRun], None] | None = None,
) -> Report:
    """Validates any bundle; `model.py` is parsed but not run.

    Args:
        path: the bundle's directory.
        execute: compile every program and run it once on random inputs.
        device: where; JAX's first device when None.
        after_run: called after each run.

    Returns:
        Everything found; a fault never raises.
    """
    place = Path(path).absolute()
    try:
        bundle = read_bundle(place)
        hooks = _hooks(bundle)
    except BundleError as error:
        return Report(name=place.name, faults=error.faults)
    faults = list(hooks.faults)
    runner = _Runner(bundle, device or jax.devices()[0], after_run) if execute else None
    programs = tuple(_programs(bundle, faults, runner))
    known = {"manifest.yaml", "weights.safetensors", "model.py", *(p.name for p in bundle.programs.values())}
    return Report(
        name=bundle.name,
        faults=tuple(faults),
        manifest=bundle.manifest,
        programs=programs,
        weights=len(bundle.weights.tensors) if bundle.weights else 0,
        weight_bytes=bundle.weights.nbytes if bundle.weights else 0,
        hooks=hooks.names,
        assets=tuple(sorted(entry.name for entry in bundle.path.iterdir() if entry.name not in known)),
    )


def _hooks(bundle: Bundle) -> HookSource:
    if bundle.hooks is None:
        return HookSource((), ())
    try:
        return inspect_hooks(bundle.manifest, bundle.hooks.read_bytes())
    except OSError as error:
        raise BundleError(f"{bundle.hooks.name}: cannot be read: {error.strerror}") from error


def _programs(bundle: Bundle, faults: list[str], runner: _Runner | None) -> Iterator[ProgramReport]:
    for key, file in bundle.programs.items():
        memory = None
        try:
            artifact = read_artifact(file)
            differences = check_signature(bundle, key, artifact.signature)
            faults += differences
            if runner is not None and not differences:
                memory = runner.run(key, artifact)
        except BundleError as error:
            faults += error.faults
            continue
        yield ProgramReport(
            file=file.name,
            key=key,
            size=file.stat().st_size,
            stablehlo_version=artifact.stablehlo_version,
            custom_calls=artifact.custom_calls,
            platforms=artifact.platforms,
            memory=memory,
        )


@final
class _Runner:
    """Compiles and runs programs of one bundle, whose weights go to the device once."""

    def __init__(
        self, bundle: Bundle, device: jax.Device, after_run: Callable[[ProgramRun], None] | None
    ) -> None:
        self._bundle = bundle
        self._device = device
        self._after_run = after_run
        self._weights: list[jax.Array] | None = None

    def run(self, key: ProgramKey, artifact: Artifact) -> MemoryUse:
        """One execution on random inputs.

        Raises:
            BundleError: naming the file: it does not compile, or fails when it runs.
        """
        program = compile_artifact(artifact, self._device)
        manifest = self._bundle.manifest
        random = np.random.default_rng(0)
        variant = {} if key.variant is None else manifest.input_shapes[key.variant]
        inputs = tuple(
            random_array(random, spec.dtype, concrete_shape(spec, key.batch, variant))
            for spec in manifest.executable_inputs
        )
        try:
            outputs = tuple(np.asarray(output) for output in program(*inputs, *self._device_weights()))
        except Exception as error:
            # The runtime's own exception type; whatever it is, the program cannot be served.
            text = " ".join(str(error).split())[:600]
            raise BundleError(f"{artifact.path.name}: fails when it runs: {text}") from error
        if self._after_run is not None:
            self._after_run(ProgramRun(artifact.path.name, key, inputs, outputs))
        return program.memory

    def _device_weights(self) -> list[jax.Array]:
        if self._weights is None:
            arrays = self._bundle.weights.arrays() if self._bundle.weights is not None else []
            self._weights = [jax.device_put(array, self._device) for array in arrays]
        return self._weights
