"""The bundles on disk that this worker may serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from reactant_core.bundle.repository import find_bundles


@final
class Repository:
    """Model directories, narrowed to `include` where that is not empty."""

    def __init__(self, dirs: Sequence[Path], include: Sequence[str] = ()) -> None:
        self._dirs = tuple(dirs)
        self._include = frozenset(include)

    def find(self) -> dict[str, Path]:
        """Name → bundle directory, read from disk now. Blocks."""
        found = find_bundles(self._dirs)
        if not self._include:
            return found
        return {name: path for name, path in found.items() if name in self._include}

    def missing(self) -> tuple[str, ...]:
        """Names in `include` for which there is no bundle. Blocks."""
        return tuple(sorted(self._include - self.find().keys()))
