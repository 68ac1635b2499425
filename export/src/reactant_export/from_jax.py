"""Writes a bundle from a JAX function and its weights."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml

from reactant_core.bundle.dtypes import weight_by_numpy
from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.manifest import Manifest, parse_manifest
from reactant_core.bundle.programs import ProgramKey, program_keys, program_names
from reactant_core.bundle.weights import write_weights
from reactant_export.argument_types import check_types
from reactant_export.declarations import PLATFORMS, ExportSpec, ModelFunction, TensorDecl
from reactant_export.hook_source import inspect_hooks
from reactant_export.lowering import lower
from reactant_export.manifest_writer import manifest_text
from reactant_export.samples import Array, difference
from reactant_export.staging import copy_assets, staged_directory
from reactant_export.traced_model import TracedModel
from reactant_export.verify import ProgramRun, verify_bundle

CONSTANTS_LIMIT_BYTES = 64 << 20
"""A program file beyond this has weights inside, where every batch size would hold a copy of them."""

PRECISIONS = ("default", "high", "highest")


def export_jax(
    fn: ModelFunction,
    weights: Mapping[str, np.ndarray[Any, Any]],
    inputs: Sequence[TensorDecl],
    outputs: Sequence[TensorDecl],
    *,
    batch_sizes: Sequence[int] | None,
    path: Path | str,
    input_shapes: Sequence[Mapping[str, int]] = (),
    client_inputs: Sequence[TensorDecl] | None = None,
    client_outputs: Sequence[TensorDecl] | None = None,
    hooks: Path | str | None = None,
    assets: Sequence[Path | str] = (),
    idempotent: bool | None = None,
    internal: bool = False,
    provenance: Mapping[str, object] | None = None,
    matmul_precision: str = "highest",
    platforms: Sequence[str] = PLATFORMS,
    verify: bool = True,
) -> Path:
    """Writes the bundle `path`, whose name is the model's; one program per batch size and input shape.

    `path` appears whole or not at all; a bundle that is there is replaced. `fn` is traced with 64-bit
    types on, so that a numpy float64 scalar in it makes f64 of f32: the declared dtypes tell.

    Args:
        fn: takes inputs and weights by name, gives outputs by name; jittable.
        weights: by name; programs take them in this order, after the inputs. Kept once for all programs.
        inputs: what the programs take, in order.
        outputs: what they give, in order.
        batch_sizes: sizes of the batch axes to compile for; None when no input has one.
        path: the bundle's directory.
        input_shapes: for inputs with axes of size -1: sizes of those axes by letter, one mapping per
            variant.
        client_inputs: what clients send, when hooks change it; likewise `client_outputs`.
        hooks: a Python file, copied as `model.py`.
        assets: files and directories the hooks read, copied under their own names.
        idempotent: whether a request may run twice without harm; None leaves it to the server.
        internal: only metas may call the model.
        provenance: mappings, lists, text, numbers and bools to write into the manifest.
        matmul_precision: of dots and convolutions that ask for none: default, high or highest.
        platforms: those the programs must run on: cpu, cuda or both.
        verify: read the bundle back, run every program on random inputs and compare with `fn`.

    Returns:
        `path`.

    Raises:
        BundleError: with every fault found: of the declarations, of what `fn` takes and gives, of the
            written bundle. Nothing is written then.
        TypeError: naming every argument of a wrong type.
    """
    spec = ExportSpec(
        fn=fn,
        weights=weights,
        inputs=inputs,
        outputs=outputs,
        batch_sizes=batch_sizes,
        input_shapes=input_shapes,
        client_inputs=client_inputs,
        client_outputs=client_outputs,
        hooks=hooks,
        assets=assets,
        idempotent=idempotent,
        internal=internal,
        provenance=provenance,
        matmul_precision=matmul_precision,
        platforms=platforms,
    )
    return export_spec(spec, path, verify=verify)


def export_spec(spec: ExportSpec, path: Path | str, *, verify: bool = True) -> Path:
    """`export_jax` with its arguments in one value."""
    check_types(spec, path)
    path = Path(path)
    text, manifest = _manifest(spec)
    model = TracedModel(spec.fn, manifest, _arrays(spec.weights), spec.matmul_precision)
    model.check()
    with staged_directory(path) as directory:
        (directory / "manifest.yaml").write_text(text, encoding="utf-8")
        if model.weights:
            write_weights(directory / "weights.safetensors", model.weights, list(model.weights))
        for key in program_keys(manifest):
            name = program_names(manifest, key)[0]
            (directory / name).write_bytes(_program(spec, model, key, path / name))
        _copy_files(spec, directory)
        if verify:
            _verify(model, directory)
    return path


def _manifest(spec: ExportSpec) -> tuple[str, Manifest]:
    faults = [
        f"weight {name!r}: dtype {np.asarray(array).dtype} cannot be written"
        for name, array in spec.weights.items()
        if weight_by_numpy(np.asarray(array).dtype) is None
    ]
    if spec.matmul_precision not in PRECISIONS:
        faults.append(f"matmul_precision: {spec.matmul_precision!r} is none of {', '.join(PRECISIONS)}")
    if not spec.platforms:
        faults.append("platforms: needs at least one, such as cpu or cuda")
    faults += [
        f"platforms: {platform!r} is none of {', '.join(PLATFORMS)}"
        for platform in spec.platforms
        if platform not in PLATFORMS
    ]
    if (spec.client_inputs or spec.client_outputs) and spec.hooks is None:
        faults.append("client_inputs and client_outputs are for bundles with hooks, which convert them")
    made_with = {
        "exporter": "reactant-export",
        "jax": jax.__version__,
        "matmul_precision": spec.matmul_precision,
        "platforms": list(spec.platforms),
    }
    try:
        text = manifest_text(
            spec.inputs,
            spec.outputs,
            batch_sizes=None if spec.batch_sizes is None else [int(size) for size in spec.batch_sizes],
            input_shapes=spec.input_shapes,
            client_inputs=spec.client_inputs,
            client_outputs=spec.client_outputs,
            idempotent=spec.idempotent,
            internal=spec.internal,
            provenance={**made_with, **(spec.provenance or {})},
        )
    except yaml.YAMLError as error:
        faults.append(f"provenance: may hold mappings, lists, text, numbers and bools only: {error}")
        raise BundleError(faults) from error
    hooks = _hook_source(spec, faults)
    try:
        manifest = parse_manifest(text.encode())
        if hooks is not None:
            faults += inspect_hooks(manifest, hooks).faults
    except BundleError as error:
        faults += error.faults
    if faults:
        raise BundleError(faults)
    return text, manifest


def _hook_source(spec: ExportSpec, faults: list[str]) -> bytes | None:
    if spec.hooks is None:
        return None
    try:
        return Path(spec.hooks).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        faults.append(f"hooks: {spec.hooks} is no file")
    except OSError as error:
        faults.append(f"hooks: {spec.hooks} cannot be read: {error.strerror}")
    return None


def _arrays(weights: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Array]:
    # As they come back from the file: little-endian.
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    return {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in arrays.items()}


def _program(spec: ExportSpec, model: TracedModel, key: ProgramKey, path: Path) -> bytes:
    data = lower(model.flat, model.arguments(key), platforms=spec.platforms, path=path)
    if len(data) > CONSTANTS_LIMIT_BYTES:
        raise BundleError(
            f"{path.name}: would have {len(data) >> 20} MiB, most of it constants: pass large arrays to fn "
            "in weights instead of closing over them"
        )
    return data


def _copy_files(spec: ExportSpec, directory: Path) -> None:
    faults: list[str] = []
    if spec.hooks is not None:
        shutil.copyfile(spec.hooks, directory / "model.py")
    copy_assets([Path(asset) for asset in spec.assets], directory, faults)
    if faults:
        raise BundleError(faults)


def _verify(model: TracedModel, directory: Path) -> None:
    """Reads the bundle back and compares each program's answers with the function's."""
    # By name throughout, so that a mistake in the order of arguments cannot be made on both sides.
    reference = jax.jit(model.by_name)
    declared = model.manifest.executable_inputs
    faults: list[str] = []

    def compare(run: ProgramRun) -> None:
        inputs = {spec.name: array for spec, array in zip(declared, run.inputs, strict=True)}
        expected = reference(inputs, dict(model.weights))
        for spec, actual in zip(model.manifest.executable_outputs, run.outputs, strict=True):
            if found := difference(np.asarray(expected[spec.name]), actual):
                faults.append(f"{run.file}: output {spec.name!r} of the written program {found}")

    report = verify_bundle(directory, after_run=compare)
    if report.faults or faults:
        raise BundleError([*report.faults, *faults])
