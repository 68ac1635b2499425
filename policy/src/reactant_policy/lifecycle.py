"""What to load, reload, rename and unload, from how the model directories look.

Pure: the caller looks, reads contents and does what a `Plan` says. A bundle is acted on when two looks in
a row found it the same, so that one that is still being copied, or away for the moment between two
renames, is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import final

from reactant_policy.looks import Difference, Digests, Found, Look, Sighting, compare


@final
@dataclass(frozen=True, slots=True)
class Known:
    """A model name that the worker knows.

    Attributes:
        directory: the model directory its bundle was found in.
        served: files of the version that serves, None without one.
        attempted: files of a later version, or of the first, that is being loaded or failed to.
        leaving: it is being unloaded; nothing is decided about it.
    """

    directory: str
    served: Look | None = None
    attempted: Look | None = None
    leaving: bool = False


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done now.

    Attributes:
        announce: names seen for the first time; they load once they look the same again.
        read: contents to hash before anything is decided about a bundle, as (name, path in the bundle).
        load: names to load.
        reload: names that serve and whose contents are other ones now, each with the paths that differ.
        rename: (old, new): `new` takes over what `old` serves. All at once, since two can be exchanged.
        keep: names that serve and have the contents that were loaded, under other marks or in another
            place, or again after others that failed to load.
        unload: names whose bundle is gone.
    """

    announce: tuple[str, ...] = ()
    read: tuple[tuple[str, str], ...] = ()
    load: tuple[str, ...] = ()
    reload: tuple[tuple[str, frozenset[str]], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    keep: tuple[str, ...] = ()
    unload: tuple[str, ...] = ()


def plan(before: Sighting, now: Sighting, known: Mapping[str, Known], digests: Digests) -> Plan:
    """Decides by the last two looks, `now` being the later one.

    Where contents have to be read first, `Plan.read` says which, and a plan made with their digests goes
    on from there. An old name is unloaded one look after it was renamed, not at once: who waits for the
    new one to be ready can leave the old one without an error.
    """
    unreadable = before.unreadable | now.unreadable
    decided = {name: k for name, k in known.items() if not k.leaving and k.directory not in unreadable}
    settled = {
        name: found
        for name, found in now.bundles.items()
        if before.bundles.get(name) == found and (name in decided or name not in known)
    }
    gone = decided.keys() - now.bundles.keys() - before.bundles.keys()
    served = {name: k.served for name, k in decided.items() if k.served is not None}
    differing = {n: compare(served[n], settled[n].look, digests) for n in settled.keys() & served.keys()}
    departed = {n: s for n, s in served.items() if n in gone or (n in differing and differing[n].changed)}
    steps = _Steps()
    steps.announce += now.bundles.keys() - known.keys()
    for name, found in sorted(settled.items()):
        state, difference = decided.get(name), differing.get(name)
        if state is not None and found.look == state.attempted:
            continue
        if difference is not None and difference.unread:
            steps.wait_for(name, difference)
        elif difference is None or difference.changed:
            steps.replace(name, found.look, difference, departed, digests)
        elif state is not None and _noteworthy(state, found):
            steps.keep.append(name)
    return steps.plan(gone)


def unread(now: Sighting, known: Mapping[str, Known], digests: Digests) -> Iterator[tuple[str, str]]:
    """Files, as (name, path in the bundle), whose digests later plans may need: read when there is time.

    Those are the files that serving versions were loaded from, as long as they are as they were.
    """
    for name, state in sorted(known.items()):
        found = now.bundles.get(name)
        if state.served is None or found is None:
            continue
        for path, mark in sorted(state.served.items()):
            if mark not in digests and found.look.get(path) == mark:
                yield name, path


class _Steps:
    """A plan in the making."""

    def __init__(self) -> None:
        self.announce: list[str] = []
        self.keep: list[str] = []
        self._read: set[tuple[str, str]] = set()
        self._load: list[str] = []
        self._reload: list[tuple[str, frozenset[str]]] = []
        self._rename: list[tuple[str, str]] = []
        self._held: set[str] = set()

    def wait_for(self, name: str, difference: Difference) -> None:
        """Decides nothing about a bundle before some of its contents are read."""
        self._read |= {(name, path) for path in difference.unread}

    def replace(
        self,
        name: str,
        look: Look,
        difference: Difference | None,
        departed: Mapping[str, Look],
        digests: Digests,
    ) -> None:
        """Gives a name new contents: those of a version that left its own name, or loaded ones."""
        undecided = False
        for old, served in sorted(departed.items()):
            to_old = compare(served, look, digests)
            if to_old.none:
                self._rename.append((old, name))
                self._held.add(old)
                return
            if not to_old.changed:
                self.wait_for(name, to_old)
                self._held.add(old)
                undecided = True
        if undecided:
            return
        if difference is None:
            self._load.append(name)
        else:
            self._reload.append((name, difference.changed))

    def plan(self, gone: AbstractSet[str]) -> Plan:
        """The finished plan; names among `gone` that others still need are left for a later one."""
        return Plan(
            announce=tuple(sorted(self.announce)),
            read=tuple(sorted(self._read)),
            load=tuple(self._load),
            reload=tuple(self._reload),
            rename=tuple(self._rename),
            keep=tuple(self.keep),
            unload=tuple(sorted(gone - self._held)),
        )


def _noteworthy(state: Known, found: Found) -> bool:
    return state.attempted is not None or found.look != state.served or found.directory != state.directory
