"""The files of the checkout that checks look at: what git tracks or would track."""

from __future__ import annotations

import subprocess
from pathlib import Path


def checkout_files(root: Path) -> list[Path]:
    """Files under `root` that are not ignored, tracked or not yet, relative and sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = {Path(name) for name in listed.stdout.split("\0") if name}
    return sorted(path for path in paths if (root / path).is_file())
