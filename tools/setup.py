"""Makes .venv from uv.lock, for the accelerator this machine has: `python -m tools.setup STAMP`.

Needs the standard library only: it is what runs before anything is installed.
"""

# ruff: noqa: S603 - it runs the uv it found
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools import accelerator, uv

STAMP_PREFIX = ".setup-"


def sync_command(binary: Path, choice: accelerator.Choice) -> list[str]:
    """The command that makes the environment equal to the lock, extra of the accelerator included."""
    extra = [] if choice.extra is None else ["--extra", choice.extra]
    return [str(binary), "sync", "--locked", *extra]


def write_stamp(stamp: Path) -> None:
    """Leaves `stamp` as the only one beside itself: an environment is set up for one accelerator."""
    for other in stamp.parent.glob(f"{STAMP_PREFIX}*"):
        other.unlink()
    stamp.touch()


def main() -> int:
    stamp = Path(sys.argv[1])
    try:
        choice = accelerator.choose(
            os.environ.get("REACTANT_GPU"),
            os.environ.get("REACTANT_GPU_VERSION"),
            accelerator.driver_version(),
        )
        binary = uv.locate()
    except (accelerator.ChoiceError, uv.UvError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(
        f"set-up: Python {sys.version.split()[0]}, JAX for {choice.extra or 'cpu'} ({choice.reason})\n"
    )
    done = subprocess.run(
        sync_command(binary, choice), env=uv.environment(os.environ), cwd=uv.ROOT, check=False
    )
    if done.returncode != 0:
        sys.stderr.write("set-up: uv sync failed; after a change of a pyproject.toml run: make fix-lock\n")
        return done.returncode
    write_stamp(stamp)
    return 0


if __name__ == "__main__":
    sys.exit(main())
