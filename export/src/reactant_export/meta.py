"""Writes the bundle of a meta model: a manifest and the code that calls other models."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from reactant_core.bundle.errors import BundleError
from reactant_export.declarations import TensorDecl
from reactant_export.manifest_writer import meta_manifest_text
from reactant_export.staging import copy_assets, staged_directory
from reactant_export.verify import verify_bundle


def export_meta(
    run: Path | str,
    inputs: Sequence[TensorDecl],
    outputs: Sequence[TensorDecl],
    *,
    calls: Sequence[str],
    path: Path | str,
    assets: Sequence[Path | str] = (),
    idempotent: bool | None = None,
    provenance: Mapping[str, object] | None = None,
) -> Path:
    """Writes the bundle `path`, whose name is the meta's; it appears whole or not at all.

    Args:
        run: a Python file with a function `run(inputs, call, request)`, copied as `model.py`.
        inputs: what clients send. A meta has no batch axis, so the letters `n` and `b` are not for it: a
            number of items is an axis of size -1.
        outputs: what clients get.
        calls: the models that it may call; none makes it a compute-only meta.
        path: the bundle's directory.
        assets: files and directories the code reads, copied under their own names.
        idempotent: whether a request may run twice without harm; None leaves it to the server.
        provenance: mappings, lists, text, numbers and bools to write into the manifest.

    Returns:
        `path`.

    Raises:
        BundleError: with every fault found. Nothing is written then.
    """
    path = Path(path)
    try:
        text = meta_manifest_text(
            inputs,
            outputs,
            calls=calls,
            idempotent=idempotent,
            provenance={"exporter": "reactant-export", **(provenance or {})},
        )
    except yaml.YAMLError as error:
        reason = "provenance: may hold mappings, lists, text, numbers and bools only"
        raise BundleError(f"{reason}: {error}") from error
    if not Path(run).is_file():
        raise BundleError(f"run: {run} is no file")
    with staged_directory(path) as directory:
        (directory / "manifest.yaml").write_text(text, encoding="utf-8")
        shutil.copyfile(run, directory / "model.py")
        faults: list[str] = []
        copy_assets([Path(asset) for asset in assets], directory, faults)
        faults += verify_bundle(directory, execute=False).faults
        if faults:
            raise BundleError(faults)
    return path
