"""Directories that appear whole or not at all, and what is left of those that did not."""

from __future__ import annotations

from pathlib import Path

import pytest

from reactant_core.bundle.errors import BundleError
from reactant_export.staging import staged_directory


def write(path: Path, text: str) -> None:
    with staged_directory(path) as directory:
        (directory / "manifest.yaml").write_text(text)


def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".staging-0123" / "model").mkdir(parents=True)
    (tmp_path / ".staging-0123" / "model" / "model.mlir").write_text("half")
    (tmp_path / ".staging-file").write_text("no directory")

    write(tmp_path / "model", "new")

    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".staging-file", "model"]


def test_what_another_export_works_on_is_left_alone(tmp_path: Path) -> None:
    with staged_directory(tmp_path / "slow") as directory:
        (directory / "manifest.yaml").write_text("slow")
        write(tmp_path / "quick", "quick")

    assert (tmp_path / "slow" / "manifest.yaml").read_text() == "slow"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["quick", "slow"]


def test_an_interrupt_leaves_what_was_there(tmp_path: Path) -> None:
    write(tmp_path / "model", "old")

    def interrupted() -> None:
        with staged_directory(tmp_path / "model") as directory:
            (directory / "manifest.yaml").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert (tmp_path / "model" / "manifest.yaml").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_an_interrupt_between_the_renames_puts_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "model", "old")
    rename = Path.rename

    def interrupted(source: Path, target: Path) -> None:
        rename(source, target)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "model", "new")

    assert (tmp_path / "model" / "manifest.yaml").read_text() == "old"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(BundleError, match=r"file/model: cannot be written: .*/file: is no directory"):
        write(tmp_path / "file" / "model", "")
    with pytest.raises(BundleError, match="/proc/nowhere/model: cannot be written: /proc/nowhere: No such"):
        write(Path("/proc/nowhere/model"), "")
