from __future__ import annotations

from pathlib import Path

import pytest
from tools.uv import PINNED, UvError, accepted, environment, find_uv

VENV = 'mkdir -p "$3/bin" && cp "$0" "$3/bin/python"'
PIP = f"""\
if [ "$5" = --target ]; then bin="$6/bin"; else bin=$(dirname "$0"); fi
mkdir -p "$bin" && printf '#!/bin/sh\\necho uv {PINNED}\\n' > "$bin/uv" && chmod +x "$bin/uv"
"""
FAIL = 'echo "No module named $2" >&2; exit 1'


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def python(folder: Path, *, venv: str = VENV, pip: str = PIP) -> Path:
    """A stand-in for an interpreter that knows `-m venv FOLDER` and `-m pip install … REQUIREMENT`."""
    return script(folder / "python3", f'case "$2" in venv) {venv};; pip) {pip};; esac')


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("uv 0.13.9 (x86_64-unknown-linux-gnu)", True),
        ("uv 0.9.0", True),
        ("uv 1.0.0", True),
        ("uv 0.8.22", False),
        ("", False),
        ("pyenv: uv: command not found", False),
    ],
)
def test_accepted_releases(report: str, expected: bool) -> None:
    assert accepted(report) is expected


def test_a_working_uv_on_the_path_is_used(tmp_path: Path) -> None:
    found = script(tmp_path / "bin" / "uv", "echo uv 0.13.0")
    assert find_uv(str(tmp_path / "bin"), tmp_path / "private", python(tmp_path)) == found
    assert not (tmp_path / "private").exists()


@pytest.mark.parametrize("body", ["echo uv 0.8.0", "echo 'uv: command not found' >&2; exit 127"])
def test_an_old_or_broken_uv_is_passed_over(tmp_path: Path, body: str) -> None:
    script(tmp_path / "bin" / "uv", body)
    found = find_uv(f"{tmp_path / 'bin'}:/usr/bin:/bin", tmp_path / "private", python(tmp_path))
    assert found == tmp_path / "private" / "venv" / "bin" / "uv"


def test_an_installed_uv_is_found_again(tmp_path: Path) -> None:
    first = find_uv("", tmp_path / "private", python(tmp_path))
    again = find_uv("", tmp_path / "private", python(tmp_path, venv=FAIL, pip=FAIL))
    assert again == first


def test_without_venv_pip_installs_into_a_folder(tmp_path: Path) -> None:
    found = find_uv("", tmp_path / "private", python(tmp_path, venv=FAIL))
    assert found == tmp_path / "private" / "target" / "bin" / "uv"


def test_with_neither_the_error_says_what_failed_and_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(UvError, match=r"(?s)No module named venv.*No module named pip.*python3-venv"):
        find_uv("", tmp_path / "private", python(tmp_path, venv=FAIL, pip=FAIL))


def test_environment_keeps_the_callers_and_never_downloads_a_python() -> None:
    variables = environment(
        {"HOME": "/home/ada", "VIRTUAL_ENV": "/elsewhere", "UV_PYTHON_DOWNLOADS": "automatic"}
    )
    assert variables["HOME"] == "/home/ada"
    assert variables["UV_PYTHON_DOWNLOADS"] == "never"
    assert variables["UV_PROJECT_ENVIRONMENT"].endswith("/.venv")
    assert "VIRTUAL_ENV" not in variables
