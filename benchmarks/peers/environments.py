"""`python -m benchmarks.peers.environments`: makes each peer's environment, `make bench-peers` runs it.

A peer's packages contradict ours, so they live in `.cache/peers/NAME`, from the pins beside this file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tools import uv

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PEERS: Final = ("triton", "mlserver")


def environment(name: str) -> Path:
    """Where the peer's environment lies, whether or not it is there."""
    return ROOT / ".cache" / "peers" / name


def site_packages(name: str) -> Path:
    """Of the peer's environment."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment(name) / "lib" / version / "site-packages"


def missing(name: str) -> str | None:
    """What the peer lacks here."""
    if not _stamp(name).is_file() or _stamp(name).read_bytes() != _pins(name).read_bytes():
        return "it is not set up (make bench-peers)"
    return None if site_packages(name).is_dir() else "it is set up for another Python (make bench-peers)"


def main() -> int:
    """Makes what is missing; 1 when a peer cannot be made here, after all were tried."""
    failed = [name for name in PEERS if missing(name) is not None and not _made(name)]
    for name in failed:
        sys.stderr.write(f"{name} cannot be set up here\n")
    return 1 if failed else 0


def _made(name: str) -> bool:
    binary, target = uv.locate(), environment(name)
    commands = (
        ["venv", "--quiet", "--clear", "--python", sys.executable, str(target)],
        [
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--python",
            str(target),
            "--requirement",
            str(_pins(name)),
        ],
    )
    sys.stderr.write(f"setting up {name} in {target}\n")
    if any(subprocess.run([binary, *command], check=False).returncode for command in commands):
        return False
    _stamp(name).write_bytes(_pins(name).read_bytes())
    return True


def _pins(name: str) -> Path:
    return Path(__file__).parent / f"{name}.txt"


def _stamp(name: str) -> Path:
    return environment(name) / "installed.txt"


if __name__ == "__main__":
    sys.exit(main())
