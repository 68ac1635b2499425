"""Model directories and the bundles in them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

from reactant_core.bundle.digest import content_digest
from reactant_core.bundle.errors import BundleError, FaultList, shown
from reactant_core.bundle.files import read_small
from reactant_core.bundle.manifest import Manifest, parse_manifest
from reactant_core.bundle.names import valid_model_name
from reactant_core.bundle.programs import PROGRAM_FILE, ProgramKey, find_programs
from reactant_core.bundle.weights import WeightSet, open_weights
from reactant_core.bundle.yaml_safe import MAX_BYTES

__all__ = [
    "Bundle",
    "ProgramKey",
    "RepositoryScan",
    "content_digest",
    "read_bundle",
    "scan_repository",
    "valid_model_name",
]

MANIFEST: Final = "manifest.yaml"
WEIGHTS: Final = "weights.safetensors"
HOOKS: Final = "model.py"
_JULIA_HOOKS: Final = "model.jl"
_TELLTALES: Final = frozenset({MANIFEST, WEIGHTS, HOOKS, _JULIA_HOOKS})

_PORT_HOOKS: Final = (
    f"{_JULIA_HOOKS}: hooks in Julia cannot run here; port them: write {HOOKS} beside it with the functions "
    "preprocess(inputs, request) and postprocess(outputs, request), each taking and returning a dict of "
    "row-major numpy arrays by tensor name (Julia's axes reversed); for a meta, run(inputs, call, request)"
)


@final
@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose files fit together; its programs are not read yet.

    Attributes:
        name: the model's name, which is the directory's.
        path: the directory.
        manifest: what it declares.
        programs: program files by key; empty for a meta.
        weights: the weight set, None when there is no weight file.
        hooks: `model.py`, None when there is none.
    """

    name: str
    path: Path
    manifest: Manifest
    programs: Mapping[ProgramKey, Path]
    weights: WeightSet | None
    hooks: Path | None

    @property
    def idempotent(self) -> bool:
        """Whether a request may run twice without harm: as declared, else true without hooks."""
        declared = self.manifest.idempotent
        return self.hooks is None if declared is None else declared

    def moved(self, path: Path) -> Bundle:
        """The same bundle where `path` is now its directory, and so its name."""
        return replace(
            self,
            name=path.name,
            path=path,
            programs=MappingProxyType({key: path / file.name for key, file in self.programs.items()}),
            weights=None if self.weights is None else self.weights.moved(path / WEIGHTS),
            hooks=None if self.hooks is None else path / HOOKS,
        )


@final
@dataclass(frozen=True, slots=True)
class RepositoryScan:
    """What the model directories hold.

    Attributes:
        bundles: bundle directories by model name, sorted by name.
        shadowed: directories passed over because an earlier model directory has that name.
        unreadable: model directories that could not be listed, each with the reason. Their bundles
            are unknown, which is not the same as gone.
    """

    bundles: Mapping[str, Path]
    shadowed: tuple[tuple[str, Path], ...]
    unreadable: tuple[tuple[Path, str], ...]


def scan_repository(dirs: Sequence[Path]) -> RepositoryScan:
    """Lists bundle directories; reads no file in them.

    A directory directly in a model directory is a bundle when its name can be a model's and it
    holds a manifest, a program, weights or hooks: also one without manifest, so that its fault can
    be shown. A symbolic link to a directory counts as one, since deployments switch versions by
    such links. Plain files and hidden directories are passed over.
    """
    bundles: dict[str, Path] = {}
    shadowed: list[tuple[str, Path]] = []
    unreadable: list[tuple[Path, str]] = []
    for directory in dirs:
        try:
            entries = sorted(os.listdir(directory))
        except OSError as error:
            unreadable.append((directory, error.strerror or str(error)))
            continue
        for name in entries:
            path = directory / name
            if not valid_model_name(name) or not _looks_like_bundle(path):
                continue
            if name in bundles:
                shadowed.append((name, path))
            else:
                bundles[name] = path
    return RepositoryScan(MappingProxyType(dict(sorted(bundles.items()))), tuple(shadowed), tuple(unreadable))


def read_bundle(path: Path) -> Bundle:
    """Reads and checks a bundle's manifest, weight header and file names; runs none of its code.

    Raises:
        BundleError: with the faults of all its files.
    """
    faults = FaultList()
    try:
        with os.scandir(path) as entries:
            files = {entry.name for entry in entries if not entry.is_dir()}
    except OSError as error:
        raise BundleError(f"{path.name}: cannot be listed: {error.strerror}") from error
    if not valid_model_name(path.name):
        faults.add(f"{shown(path.name)} cannot be a model's name")
    hooks = path / HOOKS if HOOKS in files else None
    if hooks is None and _JULIA_HOOKS in files:
        faults.add(_PORT_HOOKS)
    weights = _read_weights(faults, path, files)
    manifest = _read_manifest(faults, path, files)
    programs: Mapping[ProgramKey, Path] = {}
    if manifest is not None:
        programs = find_programs(faults, manifest, path, files)
        _check_kind(faults, path.name, manifest, files)
    faults.raise_if_any()
    assert manifest is not None
    return Bundle(path.name, path, manifest, MappingProxyType(dict(programs)), weights, hooks)


def _looks_like_bundle(path: Path) -> bool:
    try:
        return any(name in _TELLTALES or PROGRAM_FILE.fullmatch(name) for name in os.listdir(path))
    except OSError as error:
        # A bundle nobody may list has a fault to show; a plain file or a dangling link is none.
        return isinstance(error, PermissionError)


def _read_manifest(faults: FaultList, path: Path, files: set[str]) -> Manifest | None:
    if MANIFEST not in files:
        other = next((name for name in ("manifest.yml", "manifest.json") if name in files), None)
        faults.add(f"{MANIFEST}: missing" + (f"; {other} is not read" if other else ""))
        return None
    try:
        data = read_small(path / MANIFEST, MAX_BYTES)
    except BundleError as error:
        _add_all(faults, error)
        return None
    try:
        return parse_manifest(data)
    except BundleError as error:
        for fault in error.faults:
            faults.add(f"{MANIFEST}: {fault}")
        return None


def _read_weights(faults: FaultList, path: Path, files: set[str]) -> WeightSet | None:
    if WEIGHTS not in files:
        return None
    try:
        return open_weights(path / WEIGHTS)
    except BundleError as error:
        _add_all(faults, error)
        return None


def _check_kind(faults: FaultList, name: str, manifest: Manifest, files: set[str]) -> None:
    hooks = HOOKS in files
    if manifest.kind == "meta":
        if not hooks and _JULIA_HOOKS not in files:
            faults.add(f"{HOOKS}: missing; a meta is its function run(inputs, call, request)")
        if WEIGHTS in files:
            faults.add(f"{WEIGHTS}: a meta has no weights; give the file another name if its hooks read it")
        if name in manifest.meta_calls:
            faults.add(f"{MANIFEST}: meta.calls: a meta cannot call itself")
    elif not hooks and _JULIA_HOOKS not in files:
        for key in ("client_inputs", "client_outputs"):
            if getattr(manifest, key) is not None:
                faults.add(
                    f"{MANIFEST}: {key}: is only for bundles whose {HOOKS} changes the I/O; there is none"
                )


def _add_all(faults: FaultList, error: BundleError) -> None:
    for fault in error.faults:
        faults.add(fault)
