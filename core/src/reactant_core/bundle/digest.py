"""The identity of a bundle's content."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from reactant_core.bundle.files import open_regular

_CHUNK_BYTES: Final = 1 << 20
# Importing a bundle's hooks may write here, which changes nothing about the bundle.
_SKIPPED: Final = frozenset({"__pycache__"})


class HasPath(Protocol):
    @property
    def path(self) -> Path:
        """The bundle's directory."""


def content_digest(bundle: HasPath) -> str:
    """SHA-256, in hexadecimal, over the relative paths and bytes of all files of a bundle.

    Equal for two bundles exactly when they hold the same files: the directory's name, owners,
    modes and times have no part in it. Links to files count as the files they lead to; links to
    directories and `__pycache__` are left out. Reads every byte.

    Raises:
        BundleError: when a file cannot be read.
        OSError: when the directory cannot be listed.
    """
    total = hashlib.sha256()
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    for relative in sorted(_files(bundle.path)):
        one = hashlib.sha256()
        with open_regular(bundle.path / relative) as file:
            while count := file.readinto(buffer):  # type: ignore[attr-defined]
                one.update(buffer[:count])
        # A digest per file, so that no shift of bytes between names and contents gives the same sum.
        total.update(hashlib.sha256(os.fsencode(relative)).digest())
        total.update(one.digest())
    return total.hexdigest()


def _files(root: Path) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error

    for folder, names, files in os.walk(root, onerror=refuse):
        names[:] = [name for name in names if name not in _SKIPPED]
        for name in files:
            path = os.path.join(folder, name)
            if _is_file(path):
                yield os.path.relpath(path, root)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False  # a dangling link
