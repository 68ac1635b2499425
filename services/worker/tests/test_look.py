"""Looks at bundles on disk, and the digests of their files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reactant_core.testing import async_test, eventually
from reactant_policy.looks import FileMark
from reactant_worker.models.digests import DigestReader
from reactant_worker.models.look import disturbed, look_at, read_digest
from reactant_worker.models.repository import Repository


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "models" / "m"
    (path / "words").mkdir(parents=True)
    (path / "manifest.yaml").write_text("a")
    (path / "words" / "list.txt").write_text("b")
    return path


def test_every_file_has_a_mark_that_changes_with_it(bundle: Path) -> None:
    (bundle / "__pycache__").mkdir()
    (bundle / "__pycache__" / "model.pyc").write_text("")
    (bundle / "dangling").symlink_to("nowhere")
    before = look_at(bundle)
    assert before.keys() == {"manifest.yaml", "words/list.txt"}
    assert look_at(bundle) == before

    os.utime(bundle / "words" / "list.txt")

    after = look_at(bundle)
    assert after["manifest.yaml"] == before["manifest.yaml"]
    assert disturbed(before, after) == "words/list.txt"
    (bundle / "new").write_text("")
    assert not disturbed(after, look_at(bundle))
    (bundle / "manifest.yaml").unlink()
    assert disturbed(after, look_at(bundle)) == "manifest.yaml"


def test_a_move_keeps_the_marks_and_a_link_has_those_of_its_target(bundle: Path) -> None:
    before = look_at(bundle)
    moved = bundle.rename(bundle.with_name("n"))
    bundle.symlink_to(moved)

    assert look_at(moved) == look_at(bundle) == before


def test_what_is_not_there_looks_empty(tmp_path: Path) -> None:
    assert look_at(tmp_path / "nothing") == {}


def test_a_sighting_tells_what_cannot_be_listed_from_what_is_gone(bundle: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    sighting = Repository([bundle.parent, missing]).sight()

    assert sighting.unreadable == {str(missing)}
    assert {name: found.directory for name, found in sighting.bundles.items()} == {"m": str(bundle.parent)}
    assert not Repository([bundle.parent], include=["other"]).sight().bundles


def test_a_digest_goes_with_the_mark(bundle: Path) -> None:
    file = bundle / "manifest.yaml"
    found = read_digest(file)
    assert found is not None
    assert found[0] == look_at(bundle)["manifest.yaml"]

    file.write_text("c")

    again = read_digest(file)
    assert again is not None
    assert again != found
    file.write_text("a")
    restored = read_digest(file)
    assert restored is not None
    assert restored[1] == found[1]


@async_test
async def test_what_is_requested_is_read_once_and_what_cannot_be_read_is_like_nothing_else(
    bundle: Path,
) -> None:
    news: list[int] = []
    reader = DigestReader(lambda: news.append(len(reader.known)))
    marks = look_at(bundle)
    gone: list[tuple[FileMark, Path]] = [((1, n, 1, 1, 1), bundle / "gone") for n in range(2)]
    try:
        reader.request([(mark, bundle / path) for path, mark in marks.items()] + gone)
        await eventually(lambda: news == [4])
        assert set(marks.values()) < reader.known.keys()
        assert reader.known[gone[0][0]] != reader.known[gone[1][0]]

        reader.forget(set(marks.values()))
        assert reader.known.keys() == set(marks.values())
    finally:
        reader.close()
