"""Plans for made-up model directories, and the rules that hold whatever happens there."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from reactant_policy.lifecycle import Known, Plan, plan, unread
from reactant_policy.looks import FileMark, Found, Look, Sighting, compare

D = "/models"


def mark(serial: int, size: int = 10) -> FileMark:
    return (1, serial, size, serial, serial)


def look(**files: int) -> Look:
    return {path: mark(serial) for path, serial in files.items()}


def sighting(**bundles: Look) -> Sighting:
    return Sighting({name: Found(D, files) for name, files in bundles.items()})


A, B = look(manifest=1, weights=2), look(manifest=3, weights=4)
NOTHING = Sighting({})


def test_a_new_bundle_is_announced_and_loads_at_the_second_equal_look() -> None:
    first = plan(NOTHING, sighting(m=A), {}, {})
    assert first == Plan(announce=("m",))

    known = {"m": Known(D)}
    assert plan(sighting(m=A), sighting(m=B), known, {}) == Plan()
    assert plan(sighting(m=B), sighting(m=B), known, {}) == Plan(load=("m",))


def test_what_failed_is_tried_again_when_a_mark_changes() -> None:
    known = {"m": Known(D, attempted=A)}

    assert plan(sighting(m=A), sighting(m=A), known, {}) == Plan()
    assert plan(sighting(m=B), sighting(m=B), known, {}) == Plan(load=("m",))


def test_contents_are_read_only_where_they_decide() -> None:
    now = {"manifest": mark(1), "weights": mark(5), "labels": mark(6, size=99)}
    served = {"manifest": mark(1), "weights": mark(2), "labels": mark(3)}
    known = {"m": Known(D, served=served)}
    digests = {mark(2): "w", mark(3): "l"}
    twice = (sighting(m=now), sighting(m=now))

    assert plan(*twice, known, digests) == Plan(read=(("m", "weights"),))
    # Of another size, or of an older one never read: other contents without a look into them.
    assert plan(*twice, known, digests | {mark(5): "w"}) == Plan(reload=(("m", frozenset({"labels"})),))
    assert plan(*twice, known, {}) == Plan(reload=(("m", frozenset({"weights", "labels"})),))


def test_a_touched_bundle_is_kept() -> None:
    touched = look(manifest=1, weights=5)
    known = {"m": Known(D, served=A)}

    found = plan(sighting(m=touched), sighting(m=touched), known, {mark(2): "w", mark(5): "w"})

    assert found == Plan(keep=("m",))


def test_the_old_contents_again_end_a_failed_reload() -> None:
    known = {"m": Known(D, served=A, attempted=B)}

    assert plan(sighting(m=B), sighting(m=B), known, {}) == Plan()
    assert plan(sighting(m=A), sighting(m=A), known, {}) == Plan(keep=("m",))


def test_rename_then_unload() -> None:
    known = {"old": Known(D, served=A)}
    after = sighting(new=A)

    assert plan(sighting(old=A), after, known, {}) == Plan(announce=("new",))
    known["new"] = Known(D)
    assert plan(after, after, known, {}) == Plan(rename=(("old", "new"),))
    known["new"] = Known(D, served=A)
    assert plan(after, after, known, {}) == Plan(unload=("old",))


def test_replaced_by_a_staged_bundle() -> None:
    """`mv m aside && mv staged m`, with a look in between."""
    known = {"m": Known(D, served=A), "staged": Known(D, served=B)}
    between, after = sighting(staged=B), sighting(m=B)

    assert plan(sighting(m=A, staged=B), between, known, {}) == Plan()
    assert plan(between, after, known, {}) == Plan()
    assert plan(after, after, known, {}) == Plan(rename=(("staged", "m"),))


def test_exchanged() -> None:
    known = {"m": Known(D, served=A), "staged": Known(D, served=B)}
    after = sighting(m=B, staged=A)

    assert plan(after, after, known, {}) == Plan(rename=(("staged", "m"), ("m", "staged")))


def test_moved_to_another_file_system() -> None:
    """All marks are others; the old name stays until the contents of the new one are known."""
    known = {"old": Known(D, served=A), "new": Known(D)}
    after = sighting(new=look(manifest=7, weights=8))
    digests = {mark(1): "m", mark(2): "w"}

    assert plan(after, after, known, digests) == Plan(read=(("new", "manifest"), ("new", "weights")))
    digests |= {mark(7): "m", mark(8): "w"}
    assert plan(after, after, known, digests) == Plan(rename=(("old", "new"),))


def test_a_copy_is_no_rename() -> None:
    known = {"m": Known(D, served=A), "copy": Known(D)}
    after = sighting(m=A, copy=A)

    assert plan(after, after, known, {}) == Plan(load=("copy",))


def test_what_cannot_be_listed_is_not_gone() -> None:
    known = {"m": Known(D, served=A)}
    away = Sighting({}, frozenset({D}))

    assert plan(away, away, known, {}) == Plan()
    assert plan(away, NOTHING, known, {}) == Plan()
    # Nor does a bundle of that name in a later directory take its place.
    other = Sighting({"m": Found("/others", B)}, frozenset({D}))
    assert plan(other, other, known, {}) == Plan()


def test_nothing_is_decided_about_what_leaves() -> None:
    known = {"m": Known(D, served=A, leaving=True)}

    assert plan(NOTHING, NOTHING, known, {}) == Plan()
    assert plan(sighting(m=B), sighting(m=B), known, {}) == Plan()


def test_read_ahead_is_what_later_plans_compare_with() -> None:
    known = {"m": Known(D, served=A), "gone": Known(D, served=B)}

    assert list(unread(sighting(m=A), known, {mark(1): "m"})) == [("m", "weights")]
    assert list(unread(sighting(m=B), known, {})) == []


NAMES = ("a", "b", "c")
FILES = ("manifest", "weights", "labels")
names, files = st.sampled_from(NAMES), st.sampled_from(FILES)
BROKEN = "broken"
contents = st.sampled_from(["one", "two", BROKEN])


@dataclass
class File:
    content: str
    mark: FileMark


@dataclass
class Name:
    """What the made-up worker has on a name."""

    known: Known
    serves: dict[str, str] = field(default_factory=dict)
    missed: int = 0


class Repository(RuleBasedStateMachine):
    """A disk that changes at will, and a worker that does at once what its plans say."""

    def __init__(self) -> None:
        super().__init__()
        self.serial = itertools.count(1)
        self.disk: dict[str, dict[str, File]] = {}
        self.readable = True
        self.digests: dict[FileMark, str] = {}
        self.worker: dict[str, Name] = {}
        self.before: Sighting | None = None

    def file(self, content: str) -> File:
        # Sizes tell nothing: all contents but one have the same.
        return File(content, mark(next(self.serial), size=len(content)))

    @rule(name=names, path=files, content=contents)
    def write(self, name: str, path: str, content: str) -> None:
        self.disk.setdefault(name, {})[path] = self.file(content)

    @rule(name=names)
    def touch(self, name: str) -> None:
        for path, old in self.disk.get(name, {}).items():
            self.disk[name][path] = self.file(old.content)

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.disk.pop(name, None)

    @rule(name=names, path=files)
    def remove_file(self, name: str, path: str) -> None:
        if name in self.disk:
            self.disk[name].pop(path, None)
            if not self.disk[name]:
                del self.disk[name]

    @rule(old=names, new=names)
    def move(self, old: str, new: str) -> None:
        if old in self.disk:
            self.disk[new] = self.disk.pop(old)

    @rule(one=names, other=names)
    def exchange(self, one: str, other: str) -> None:
        if one in self.disk and other in self.disk:
            self.disk[one], self.disk[other] = self.disk[other], self.disk[one]

    @rule(old=names, new=names)
    def copy(self, old: str, new: str) -> None:
        if old in self.disk:
            self.disk[new] = {path: self.file(f.content) for path, f in self.disk[old].items()}

    @rule(readable=st.booleans())
    def mount(self, readable: bool) -> None:
        self.readable = readable

    @rule()
    @precondition(lambda self: self.before is not None and self.readable)
    def read_ahead(self) -> None:
        now = self.sight()
        for name, path in unread(now, self.known(), self.digests):
            self.read(name, path)

    @rule()
    def look(self) -> None:
        now = self.sight()
        for name, there in self.worker.items():
            there.missed = 0 if name in self.disk or not self.readable else there.missed + 1
        if self.before is not None:
            self.act(self.before, now)
        self.before = now

    def teardown(self) -> None:
        self.readable = True
        for _ in range(5):
            self.look()
        assert self.before is not None
        assert plan(self.before, self.sight(), self.known(), self.digests) == Plan()
        assert self.worker.keys() == self.disk.keys()
        for name, there in self.worker.items():
            if self.sound(name):
                assert there.serves == self.contents(name)

    def act(self, before: Sighting, now: Sighting) -> None:
        found = plan(before, now, self.known(), self.digests)
        while found.read:
            for name, path in found.read:
                self.read(name, path)
            again = plan(before, now, self.known(), self.digests)
            assert again.read != found.read
            found = again
        for name in found.announce:
            self.worker[name] = Name(Known(D))
        moved = {new: dict(self.worker[old].serves) for old, new in found.rename}
        changed = dict(found.reload)
        for name in (*found.load, *changed, *moved, *found.keep):
            assert before.bundles[name] == now.bundles[name], "acted on before it was settled"
            there, files = self.worker[name], now.bundles[name].look
            if name in changed:
                differing = differ(there.serves, self.contents(name))
                assert differing <= changed[name]
                assert differing or not self.was_read(there.known), "the same contents loaded again"
            if name in moved:
                assert moved[name] == self.contents(name), "renamed to other contents"
            if name in found.keep:
                assert there.serves == self.contents(name), "kept though it has changed"
            if name in moved or self.sound(name):
                there.serves = self.contents(name)
                there.known = Known(D, served=files)
            else:
                there.known = replace(there.known, attempted=files)
        for name in found.unload:
            assert self.worker[name].missed >= 2, "unloaded though it is there"
            del self.worker[name]

    def known(self) -> dict[str, Known]:
        return {name: there.known for name, there in self.worker.items()}

    def was_read(self, known: Known) -> bool:
        return known.served is not None and set(known.served.values()) <= self.digests.keys()

    def sound(self, name: str) -> bool:
        return BROKEN not in self.contents(name).values()

    def contents(self, name: str) -> dict[str, str]:
        return {path: file.content for path, file in self.disk[name].items()}

    def read(self, name: str, path: str) -> None:
        file = self.disk[name][path]
        self.digests[file.mark] = file.content

    def sight(self) -> Sighting:
        if not self.readable:
            return Sighting({}, frozenset({D}))
        return Sighting(
            {
                name: Found(D, {path: file.mark for path, file in bundle.items()})
                for name, bundle in self.disk.items()
            }
        )


def differ(old: Mapping[str, str], new: Mapping[str, str]) -> set[str]:
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


TestRepository = Repository.TestCase
TestRepository.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_compare_never_reads_what_marks_or_sizes_tell() -> None:
    old = {"same": mark(1), "longer": mark(2, 5), "gone": mark(3)}
    new = {"same": mark(1), "longer": mark(4, 6), "new": mark(5)}

    difference = compare(old, new, {mark(2, 5): "x"})

    assert difference.changed == {"longer", "gone", "new"}
    assert not difference.unread
