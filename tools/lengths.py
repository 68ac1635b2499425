"""Finds files that grew too long to read: `python -m tools.lengths`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.files import checkout_files

LIMIT_LINES: Final = 600
SUFFIXES: Final = frozenset(
    {".py", ".proto", ".md", ".sh", ".toml", ".yaml", ".yml", ".lua", ".html", ".css", ".js"}
)
GENERATED_ENDINGS: Final = ("_pb2.py", "_pb2_grpc.py")


def is_written_by_hand(path: Path) -> bool:
    """Whether a person wrote the text of `path`: generated stubs and locks are as long as they are."""
    return (path.suffix in SUFFIXES or path.name == "Makefile") and not path.name.endswith(GENERATED_ENDINGS)


def too_long(root: Path, paths: Iterable[Path], limit: int = LIMIT_LINES) -> list[str]:
    """One sentence for each file of more than `limit` lines."""
    faults = []
    for path in paths:
        if is_written_by_hand(path):
            lines = len((root / path).read_bytes().splitlines())
            if lines > limit:
                faults.append(f"{path}: {lines} lines, {limit} at most: split it by concept")
    return faults


def main() -> int:
    root = Path.cwd()
    faults = too_long(root, checkout_files(root))
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
