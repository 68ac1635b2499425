from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.repository import content_digest, read_bundle

MakeBundle = Callable[..., Path]


@pytest.fixture
def bundle_path(make_bundle: MakeBundle) -> Path:
    path = make_bundle({"vocab.txt": "a\nb"})
    (path / "assets").mkdir()
    (path / "assets" / "labels.txt").write_text("cat")
    return path


def digest(path: Path) -> str:
    return content_digest(read_bundle(path))


def test_a_digest_follows_the_content_alone(bundle_path: Path) -> None:
    before = digest(bundle_path)
    assert len(before) == 64
    copy = bundle_path.parent / "other-name"
    shutil.copytree(bundle_path, copy)
    for file in copy.rglob("*"):
        os.utime(file, (1, 1))
    (copy / "vocab.txt").chmod(0o600)
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "model.pyc").write_bytes(b"x")
    assert digest(copy) == before


def test_links_to_files_count_as_the_files(bundle_path: Path, tmp_path: Path) -> None:
    before = digest(bundle_path)
    (bundle_path / "vocab.txt").rename(tmp_path / "blob")
    (bundle_path / "vocab.txt").symlink_to(tmp_path / "blob")
    (bundle_path / "dangling").symlink_to(tmp_path / "gone")
    (bundle_path / "self").symlink_to(bundle_path)
    assert digest(bundle_path) == before


def _rename(path: Path) -> None:
    (path / "vocab.txt").rename(path / "words.txt")


def _shift(path: Path) -> None:
    (path / "vocab.txt").write_text("a\n")
    (path / "vocab.txt2").write_text("b")


@pytest.mark.parametrize(
    "change",
    [
        lambda path: (path / "vocab.txt").write_text("a\nc"),
        lambda path: (path / "assets" / "labels.txt").write_text("dog"),
        lambda path: (path / "empty").touch(),
        lambda path: (path / "model.b1.mlir").write_bytes(b"another"),
        lambda path: (path / "assets" / "labels.txt").rename(path / "labels.txt"),
        _rename,
        _shift,
    ],
)
def test_any_change_of_content_changes_it(bundle_path: Path, change: Callable[[Path], object]) -> None:
    before = digest(bundle_path)
    change(bundle_path)
    assert digest(bundle_path) != before


def test_a_bundle_that_vanished_has_none(bundle_path: Path) -> None:
    bundle = read_bundle(bundle_path)
    shutil.rmtree(bundle_path)
    with pytest.raises((BundleError, FileNotFoundError)):
        content_digest(bundle)
