from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tools.accelerator import Choice
from tools.setup import sync_command, write_stamp

FIND_PYTHON = Path(__file__).resolve().parents[1] / "find-python"


@pytest.mark.parametrize(("extra", "tail"), [(None, []), ("cuda13", ["--extra", "cuda13"])])
def test_the_lock_is_obeyed(extra: str | None, tail: list[str]) -> None:
    assert sync_command(Path("/bin/uv"), Choice(extra, "")) == ["/bin/uv", "sync", "--locked", *tail]


def test_a_stamp_replaces_the_one_of_another_accelerator(tmp_path: Path) -> None:
    write_stamp(tmp_path / ".setup-cuda-13-driver")
    write_stamp(tmp_path / ".setup-cpu-auto-driver")
    assert [path.name for path in tmp_path.iterdir()] == [".setup-cpu-auto-driver"]


def find_python(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", FIND_PYTHON],
        env={"PATH": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=30,
    )


def interpreter(folder: Path, name: str, *, recent: bool) -> None:
    path = folder / name
    # The script asks the version with an exit status first and for the executable's path second.
    path.write_text(f'#!/bin/sh\ncase "$2" in *exit*) exit {0 if recent else 1};; *) echo "$0";; esac\n')
    path.chmod(0o755)


def test_python3_is_taken_when_it_is_recent(tmp_path: Path) -> None:
    interpreter(tmp_path, "python3", recent=True)
    interpreter(tmp_path, "python3.13", recent=True)
    assert find_python(tmp_path).stdout.strip() == str(tmp_path / "python3")


def test_a_named_release_is_taken_when_python3_is_old(tmp_path: Path) -> None:
    interpreter(tmp_path, "python3", recent=False)
    interpreter(tmp_path, "python3.12", recent=True)
    assert find_python(tmp_path).stdout.strip() == str(tmp_path / "python3.12")


def test_the_callers_choice_comes_first_and_has_no_substitute(tmp_path: Path) -> None:
    interpreter(tmp_path, "python3", recent=True)
    interpreter(tmp_path, "mine", recent=False)
    done = find_python(tmp_path, PYTHON="mine")
    assert done.returncode == 1
    assert "3.11 or newer" in done.stderr
    assert "mine" in done.stderr


def test_without_any_the_error_says_what_is_needed(tmp_path: Path) -> None:
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Python 3.11 or newer" in done.stderr


def test_the_interpreter_running_this_test_is_recent_enough() -> None:
    done = subprocess.run([FIND_PYTHON], env=os.environ, capture_output=True, text=True, timeout=30)
    assert Path(done.stdout.strip()).is_file()
