"""How bundles look on disk, and what differs between two looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

FileMark = tuple[int, int, int, int, int]
"""Device, inode, size in bytes, mtime and ctime in nanoseconds: files of equal marks have equal contents."""

Look = Mapping[str, FileMark]
"""The files of one bundle: mark by path relative to the bundle."""

Digests = Mapping[FileMark, str]
"""Contents that were read: a hash by the mark that the file had throughout."""


@final
@dataclass(frozen=True, slots=True)
class Found:
    """One bundle in a look.

    Attributes:
        directory: the model directory it lies in.
        look: its files.
    """

    directory: str
    look: Look


@final
@dataclass(frozen=True, slots=True)
class Sighting:
    """One look at all model directories.

    Attributes:
        bundles: what was found, by model name.
        unreadable: model directories that could not be listed: what lies there is unknown, not gone.
    """

    bundles: Mapping[str, Found]
    unreadable: frozenset[str] = frozenset()


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """How the contents of two looks differ.

    Attributes:
        changed: paths that do differ.
        unread: paths of the later look that must be read to tell.
    """

    changed: frozenset[str]
    unread: frozenset[str]

    @property
    def none(self) -> bool:
        """The contents are the same."""
        return not self.changed and not self.unread


def compare(old: Look, new: Look, digests: Digests) -> Difference:
    """Compares by marks, then by sizes, then by digests; old contents never read count as other ones."""
    changed: set[str] = set()
    unread: set[str] = set()
    for path in () if old == new else old.keys() | new.keys():
        was, now = old.get(path), new.get(path)
        if was == now:
            continue
        if was is None or now is None or _size(was) != _size(now) or was not in digests:
            changed.add(path)
        elif now not in digests:
            unread.add(path)
        elif digests[was] != digests[now]:
            changed.add(path)
    return Difference(frozenset(changed), frozenset(unread))


def _size(mark: FileMark) -> int:
    return mark[2]
