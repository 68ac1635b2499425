"""How a bundle looks on disk now."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from reactant_core.bundle.files import open_regular
from reactant_policy.looks import FileMark, Look

_SKIPPED = frozenset({"__pycache__"})
"""Importing a bundle's code may write here, which changes nothing about the bundle."""


def look_at(bundle: Path) -> Look:
    """Marks of all files of a bundle; empty when there is none. Blocks.

    Links to files count as the files they lead to; links to folders are left out. What cannot be looked at
    has a mark of its own, which ends when it can.
    """
    marks: dict[str, FileMark] = {}

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            marks[os.path.relpath(error.filename, bundle)] = _unreadable(error)

    for folder, names, files in os.walk(bundle, onerror=note):
        names[:] = [name for name in names if name not in _SKIPPED]
        for name in files:
            path = os.path.join(folder, name)
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue  # a dangling link, or gone since it was listed
            except OSError as error:
                marks[os.path.relpath(path, bundle)] = _unreadable(error)
                continue
            if stat.S_ISREG(status.st_mode):
                marks[os.path.relpath(path, bundle)] = _mark(status)
    return marks


def read_digest(file: Path) -> tuple[FileMark, str] | None:
    """A file's mark and SHA-256; None when it was written to meanwhile. Blocks for as long as reading takes.

    Raises:
        BundleError: it cannot be opened, or is no regular file.
        OSError: it cannot be read.
    """
    with open_regular(file) as opened:
        before = _mark(os.fstat(opened.fileno()))
        digest = hashlib.file_digest(opened, "sha256")  # type: ignore[arg-type]
        after = _mark(os.fstat(opened.fileno()))
    return (after, digest.hexdigest()) if before == after else None


def disturbed(before: Look, after: Look) -> str:
    """A file that is gone or another one in the second of two looks, the first by name; else empty.

    New files do not count: a `setup` may write into its bundle.
    """
    return next((path for path in sorted(before) if after.get(path) != before[path]), "")


def _mark(status: os.stat_result) -> FileMark:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _unreadable(error: OSError) -> FileMark:
    return (0, 0, -1, 0, error.errno or 0)
