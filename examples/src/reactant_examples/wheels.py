"""Finds data files inside installed distributions, without importing them.

The wheels used here are boxes of files: importing the one would load PyTorch, and the other takes seconds.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path


def wheel_file(distribution: str, name: str) -> Path:
    """Path of the file `name`, relative to site-packages, that `distribution` installed.

    Raises FileNotFoundError saying which of the two is missing.
    """
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        raise FileNotFoundError(f"{distribution} is not installed; it carries {name}") from None
    path = Path(str(found.locate_file(name)))
    if not path.is_file():
        raise FileNotFoundError(f"{distribution} {found.version} has no file {name}")
    return path
