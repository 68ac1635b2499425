"""The bundles on disk that this worker may serve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from reactant_core.bundle.repository import RepositoryScan, scan_repository
from reactant_policy.looks import Found, Sighting
from reactant_worker.models.look import look_at


@final
class Repository:
    """Model directories, narrowed to `include` where that is not empty."""

    def __init__(self, dirs: Sequence[Path], include: Sequence[str] = ()) -> None:
        self._dirs = tuple(dirs)
        self._include = frozenset(include)

    @property
    def dirs(self) -> tuple[Path, ...]:
        """The model directories, the first of which wins where two have the same name."""
        return self._dirs

    def scan(self) -> RepositoryScan:
        """What is on disk now, whatever `include` says. Blocks."""
        return scan_repository(self._dirs)

    def find(self) -> dict[str, Path]:
        """Name to bundle directory, read from disk now; unreadable directories give nothing. Blocks."""
        return self.served(self.scan())

    def served(self, scan: RepositoryScan) -> dict[str, Path]:
        """The bundles of a scan that this worker may serve."""
        return {n: p for n, p in scan.bundles.items() if not self._include or n in self._include}

    def sight(self) -> Sighting:
        """Looks at every file of the bundles that this worker may serve; reads none. Blocks."""
        scan = self.scan()
        return Sighting(
            {name: Found(str(path.parent), look_at(path)) for name, path in self.served(scan).items()},
            frozenset(str(path) for path, _ in scan.unreadable),
        )

    def missing(self, scan: RepositoryScan) -> tuple[str, ...]:
        """Names in `include` for which a scan found no bundle."""
        return tuple(sorted(self._include - scan.bundles.keys()))
