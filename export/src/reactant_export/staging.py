"""Writes a directory so that others see all of it or none."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.names import valid_model_name

_BUNDLE_FILES = frozenset({"manifest.yaml", "weights.safetensors", "model.py"})


_PREFIX = ".staging-"


@contextmanager
def staged_directory(path: Path) -> Iterator[Path]:
    """A fresh directory, of the same name as `path`, that takes its place when the block ends well.

    It lies in a hidden directory beside `path`, which a server's model directory scan passes over. What
    was at `path` is removed; between the two renames, for an instant, nothing is there. On an error
    `path` stays as it was. Hidden directories that killed exports left beside `path` are removed.

    Raises:
        BundleError: a bundle cannot be written to `path`.
    """
    try:
        if fault := _target_fault(path):
            raise BundleError(fault)
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        hidden, lock = _hidden_directory(path.parent)
    except OSError as error:
        reason = "is no directory" if isinstance(error, FileExistsError) else error.strerror
        raise BundleError(f"{path}: cannot be written: {error.filename}: {reason}") from error
    try:
        fresh = hidden / path.name
        fresh.mkdir()
        yield fresh
        _sync_tree(fresh)
        old = hidden / f"{secrets.token_hex(8)}"
        try:
            if path.exists():
                path.rename(old)
            fresh.rename(path)
        except BaseException:  # also an interrupt between the two
            if old.exists() and not path.exists():
                old.rename(path)
            raise
        _sync_directory(path.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        os.close(lock)


def _hidden_directory(parent: Path) -> tuple[Path, int]:
    """A directory for this export alone, and the descriptor that keeps it locked until it is closed."""
    while True:
        hidden = parent / f"{_PREFIX}{secrets.token_hex(8)}"
        hidden.mkdir()
        # Until it is locked, another export may take it for abandoned and remove it.
        try:
            lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            return hidden, lock  # a file system without locks, where nothing is taken for abandoned
        if hidden.exists():
            return hidden, lock
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Removes hidden directories whose lock is free, which is to say whose process is gone."""
    for hidden in parent.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(hidden, ignore_errors=True)
        except OSError:
            continue  # in use, or a file system without locks
        finally:
            os.close(lock)


def copy_assets(assets: Sequence[Path], directory: Path, faults: list[str]) -> None:
    """Copies files and directories by their own names; what cannot be copied is added to `faults`."""
    for asset in assets:
        target = directory / asset.name
        if not asset.exists():
            faults.append(f"asset {asset}: does not exist")
        elif asset.name in _BUNDLE_FILES or asset.name.endswith(".mlir"):
            faults.append(f"asset {asset}: {asset.name} is a name the bundle uses itself")
        elif target.exists():
            faults.append(f"asset {asset}: another asset has this name")
        elif asset.is_dir():
            shutil.copytree(asset, target)
        else:
            shutil.copyfile(asset, target)


def _target_fault(path: Path) -> str | None:
    if not valid_model_name(path.name):
        return f"{path}: {path.name!r} cannot be a model's name"
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        return f"{path}: is there already and is no directory"
    if path.is_dir() and (names := set(os.listdir(path))) and not names & _BUNDLE_FILES:
        return f"{path}: is there already and holds something other than a bundle"
    return None


def _sync_tree(directory: Path) -> None:
    for folder, _, files in os.walk(directory):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                os.fsync(file.fileno())
        _sync_directory(Path(folder))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
