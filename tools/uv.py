"""Finds uv, or installs it for this checkout alone, and runs it as `python -m tools.uv ARGUMENTS`."""

# ruff: noqa: S603 - it runs the uv it found
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PINNED: Final = "0.13.9"
"""The release that is installed where there is none, and that wrote uv.lock."""

OLDEST: Final = (0, 9)
"""The oldest release that reads this workspace: its packages are built by uv_build 0.9 or newer."""

ROOT: Final = Path(__file__).resolve().parent.parent


class UvError(Exception):
    """uv is neither here nor can it be installed."""


def accepted(report: str) -> bool:
    """Whether what `uv --version` printed names a release that is new enough."""
    match = re.match(r"uv (\d+)\.(\d+)", report)
    return match is not None and (int(match[1]), int(match[2])) >= OLDEST


def find_uv(path: str, private: Path, python: Path) -> Path:
    """The uv on `path` if it runs and is new enough, else the one under `private`, installed if need be.

    Args:
        path: directories as in the PATH variable.
        private: a folder that may be created and replaced.
        python: the interpreter that installs it.

    Raises:
        UvError: with what to install.
    """
    on_path = shutil.which("uv", path=path)
    if on_path is not None and _works(Path(on_path)):
        return Path(on_path)
    for binary in (private / "venv" / "bin" / "uv", private / "target" / "bin" / "uv"):
        if _works(binary):
            return binary
    return _install(private, python)


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables uv runs under: this checkout's own environment and a Python that is already here."""
    kept = {name: value for name, value in inherited.items() if name != "VIRTUAL_ENV"}
    return kept | {
        "UV_PROJECT_ENVIRONMENT": str(ROOT / ".venv"),
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
    }


def _works(binary: Path) -> bool:
    # A version manager's shim can exist and still fail, so uv is run rather than looked for.
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return False
    return accepted(answer.stdout)


def _install(private: Path, python: Path) -> Path:
    shutil.rmtree(private, ignore_errors=True)
    private.mkdir(parents=True)
    venv, target = private / "venv", private / "target"
    requirement = f"uv=={PINNED}"
    # Debian splits ensurepip from python3; there a pip of the system's may still be at hand.
    attempts = [
        [
            [str(python), "-m", "venv", str(venv)],
            [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement],
        ],
        [[str(python), "-m", "pip", "install", "--quiet", "--target", str(target), requirement]],
    ]
    failures = []
    for commands in attempts:
        failure = _run_all(commands)
        if failure is None:
            break
        failures.append(failure)
    for binary in (venv / "bin" / "uv", target / "bin" / "uv"):
        if _works(binary):
            return binary
    oldest = ".".join(map(str, OLDEST))
    raise UvError(
        "\n".join(failures) + f"\nset-up needs uv {oldest} or newer on PATH, or a Python that can install it:"
        f" {python} has neither a working venv nor pip"
        " (on Debian or Ubuntu: apt-get install python3-venv)"
    )


def _run_all(commands: list[list[str]]) -> str | None:
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{' '.join(command)}:\n{(done.stdout + done.stderr).strip()}"
    return None


def locate() -> Path:
    """uv for this checkout; see `find_uv`."""
    return find_uv(os.environ.get("PATH", os.defpath), ROOT / ".cache" / "uv", Path(sys.executable))


def main() -> int:
    try:
        binary = locate()
    except UvError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return subprocess.run(
        [binary, *sys.argv[1:]], env=environment(os.environ), cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
