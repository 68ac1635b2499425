from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from reactant_supervisor.run_dir import open_run_dir


def test_it_is_made_and_leaves_nothing(tmp_path: Path) -> None:
    asked = tmp_path / "run" / "node"
    run_dir = open_run_dir(asked)
    assert (run_dir.path, run_dir.note) == (asked, None)
    path = run_dir.write("node.yaml", "role: all\n")
    assert path.read_text() == "role: all\n"
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0
    run_dir.file("never.sock")
    run_dir.file("worker0.sock").touch()
    run_dir.close()
    assert not asked.exists()


def test_a_directory_that_was_there_stays_with_what_others_have_in_it(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    run_dir = open_run_dir(tmp_path)
    run_dir.write("node.yaml", "")
    run_dir.close()
    assert os.listdir(tmp_path) == ["other"]


def test_what_a_killed_node_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("role: workers\n")
    run_dir = open_run_dir(tmp_path)
    run_dir.write("node.yaml", "x")
    assert (tmp_path / "node.yaml").read_text() == "x"
    run_dir.close()


def test_a_directory_of_a_running_node_is_left_to_it(tmp_path: Path) -> None:
    asked, root = tmp_path / "run", tmp_path / "tmp"
    root.mkdir()
    first = open_run_dir(asked, temporary=root)
    second = open_run_dir(asked, temporary=root)
    third = open_run_dir(asked, temporary=root)
    assert first.path == asked
    assert len({first.path, second.path, third.path}) == 3
    assert second.path.parent == root
    assert second.note is not None
    assert f"{asked} is another node's: using {second.path}" in second.note
    for run_dir in (first, second, third):
        run_dir.close()
    assert open_run_dir(asked, temporary=root).path == asked
    assert os.listdir(root) == []


@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_where_none_can_be_a_temporary_one_is(tmp_path: Path, kind: str) -> None:
    asked = tmp_path / "run"
    asked.touch()
    run_dir = open_run_dir(asked if kind == "file" else asked / "node", temporary=tmp_path)
    assert run_dir.path.parent == tmp_path
    assert run_dir.note is not None
    assert str(asked) in run_dir.note
    run_dir.close()


@pytest.mark.slow
def test_temporary_folders_of_killed_nodes_go(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from reactant_supervisor.run_dir import open_run_dir;"
        "open_run_dir(Path('/dev/null'), temporary=Path(sys.argv[1])).write('node.yaml', 'x'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    (left,) = tmp_path.iterdir()
    run_dir = open_run_dir(Path("/dev/null"), temporary=tmp_path)
    assert not left.exists()
    assert run_dir.path.exists()
    run_dir.close()
