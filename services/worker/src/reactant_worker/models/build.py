"""The pieces of building a served model that need no bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.manifest import TensorSpec
from reactant_core.bundle.repository import Bundle, ProgramKey
from reactant_core.bundle.signature import align_weights, check_signature
from reactant_core.clock import Clock
from reactant_programs.artifact import Artifact
from reactant_worker.engine.batch import ProgramSet
from reactant_worker.models.hooks import Hooks
from reactant_worker.models.served import ServedModel

_WARM_UP_SECONDS = 1.0
"""Time one model's warm-up may take once its first variant is through: a program that runs for seconds
gains nothing from a rehearsal, and a start that waits for it loses."""

_REPEAT_SECONDS = 0.5
"""A first run may be mostly lazy set-up: unless it took longer than this, a second one gives the cost."""


def check_artifacts(bundle: Bundle, artifacts: Mapping[ProgramKey, Artifact]) -> Bundle:
    """Compares every program's signature with the manifest and the weights.

    Returns the bundle with its weights oriented as the programs take them. Raises BundleError with
    every difference.
    """
    aligned = align_weights(bundle, next(iter(artifacts.values())).signature)
    faults = [
        fault
        for key, artifact in artifacts.items()
        for fault in check_signature(aligned, key, artifact.signature)
    ]
    if faults:
        raise BundleError(faults)
    return aligned


def check_hooks(bundle: Bundle, hooks: Hooks | None) -> None:
    """Raises BundleError when client tensors differ from the program's and no hook bridges the two.

    For a meta: when it has no `run`.
    """
    manifest = bundle.manifest
    if manifest.kind == "meta":
        if hooks is None or hooks.meta_run is None:
            raise BundleError(["model.py: a meta needs a function run(inputs, call, request)"])
        return
    sides = (
        ("preprocess", "client_inputs", manifest.client_inputs, manifest.executable_inputs),
        ("postprocess", "client_outputs", manifest.client_outputs, manifest.executable_outputs),
    )
    faults = [
        f"{section} differ from {section.replace('client', 'executable')} and model.py has no {hook}"
        for hook, section, client, executable in sides
        if client is not None
        and set(client) != set(executable)
        and (hooks is None or getattr(hooks, hook) is None)
    ]
    if faults:
        raise BundleError(faults)


def describe(
    bundle: Bundle, hooks: Hooks | None, artifacts: Mapping[ProgramKey, Artifact], weight_bytes: int
) -> ServedModel:
    """What the RPC side needs to know of the bundle."""
    manifest = bundle.manifest
    inputs, outputs = manifest.executable_inputs, manifest.executable_outputs
    sizes = manifest.compiled_batch_sizes or (1,)
    smallest = sizes[0] if manifest.compiled_batch_sizes else None
    keys = {
        variant: ProgramKey(smallest, variant)
        for variant in sorted({k.variant for k in artifacts}, key=_first)
    }
    variants = tuple(
        tuple(argument.shape for argument in artifacts[key].signature.arguments[: len(inputs)])
        for variant, key in keys.items()
        if variant is not None
    )
    return ServedModel(
        bundle=bundle,
        hooks=hooks,
        client_inputs=_by_name(manifest.inputs),
        client_outputs=_by_name(manifest.outputs),
        executable_inputs=inputs,
        executable_outputs=outputs,
        sizes=sizes,
        variants=variants,
        output_shapes=MappingProxyType(
            {
                variant: tuple(result.shape for result in artifacts[key].signature.results)
                for variant, key in keys.items()
            }
        ),
        weight_bytes=weight_bytes,
    )


def describe_meta(bundle: Bundle, hooks: Hooks | None) -> ServedModel:
    """What the RPC side needs to know of a meta."""
    return ServedModel(
        bundle=bundle,
        hooks=hooks,
        client_inputs=_by_name(bundle.manifest.inputs),
        client_outputs=_by_name(bundle.manifest.outputs),
        executable_inputs=(),
        executable_outputs=(),
        sizes=(1,),
        variants=(),
        output_shapes=MappingProxyType({}),
        weight_bytes=0,
        meta=True,
        calls=bundle.manifest.meta_calls,
    )


def warm_up(model: ServedModel, runnable: ProgramSet, clock: Clock) -> dict[tuple[int | None, int], float]:
    """Runs programs on zeros; returns seconds per (variant, batch size) that was run.

    Every size of the first variant is run; further variants, in manifest order, while time allows.
    """
    seconds: dict[tuple[int | None, int], float] = {}
    shapes_of = model.variants or (tuple(spec.dims for spec in model.executable_inputs),)
    started = clock.monotonic()
    for index, shapes in enumerate(shapes_of):
        variant = index if model.variants else None
        for size in model.sizes:
            if index and clock.monotonic() - started > _WARM_UP_SECONDS:
                return seconds
            arguments = tuple(
                np.zeros(
                    tuple(size if axis == spec.batch_axis else dim for axis, dim in enumerate(shape)),
                    spec.dtype.numpy,
                )
                for spec, shape in zip(model.executable_inputs, shapes, strict=True)
            )
            _, cost = runnable.execute(size, variant, [arguments], [size])
            if cost < _REPEAT_SECONDS:
                _, again = runnable.execute(size, variant, [arguments], [size])
                cost = min(cost, again)
            seconds[variant, size] = cost
    return seconds


def _by_name(specs: tuple[TensorSpec, ...]) -> Mapping[str, TensorSpec]:
    return MappingProxyType({spec.name: spec for spec in specs})


def _first(variant: int | None) -> int:
    return -1 if variant is None else variant
