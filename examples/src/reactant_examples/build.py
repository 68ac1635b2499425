"""Builds the example bundles that are missing or out of date: `python -m reactant_examples.build`."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reactant_examples.catalogue import EXAMPLES, Example, is_current, source_stamp


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is asked for; 0 when all of it is there afterwards, 130 when interrupted, else 1."""
    parser = _parser()
    options = parser.parse_args(arguments)
    names = [example.name for example in EXAMPLES]
    if unknown := [name for name in options.names if name not in names]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = [example for example in EXAMPLES if example.name in (options.names or names)]
    try:
        return 1 if build_missing(chosen, options.out, force=options.force) else 0
    except KeyboardInterrupt:
        # Ends the line of the model that was being built, of which nothing is left.
        sys.stderr.write("interrupted\n")
        return 130
    except OSError as error:
        reason = "is no directory" if isinstance(error, FileExistsError) else error.strerror
        sys.stderr.write(f"cannot build in {options.out}: {error.filename}: {reason}\n")
        return 1


def build_missing(examples: Sequence[Example], out: Path, *, force: bool = False) -> list[str]:
    """Build those of `examples` that `out` lacks or has from other sources; with `force`, all of them.

    Returns the names of those that could not be built; why is on stderr, and the others are built.
    """
    stamps = {example: source_stamp(example) for example in examples}

    def outdated(example: Example) -> bool:
        return force or not is_current(out / example.name, stamps[example])

    if not any(outdated(example) for example in examples):
        return []
    with _sole_builder(out):
        # Asked again inside: another builder may have held the lock until now.
        return [
            example.name
            for example in examples
            if outdated(example) and not _build(example, out, stamps[example])
        ]


def _build(example: Example, out: Path, stamp: str) -> bool:
    sys.stderr.write(f"building {example.name} ({example.summary}) ... ")
    sys.stderr.flush()
    begin = time.perf_counter()
    target = out / example.name
    try:
        example.write(target, {"stamp": stamp})
    except Exception as error:
        sys.stderr.write(f"failed\n  {type(error).__name__}: {error}\n")
        return False
    size = sum(file.stat().st_size for file in target.iterdir()) / 1e6
    sys.stderr.write(f"{time.perf_counter() - begin:.1f} s, {size:.1f} MB in {target}\n")
    return True


@contextmanager
def _sole_builder(out: Path) -> Iterator[None]:
    """Wait until no other process builds in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {example.name:10} {example.summary}" for example in EXAMPLES)
    parser = argparse.ArgumentParser(
        prog="python -m reactant_examples.build",
        description="Build the example bundles that are missing or whose sources have changed.",
        epilog=f"models:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="MODEL", help="models to build (default: all)")
    parser.add_argument("--out", type=Path, default=Path("bundles"), help="where to (default: ./bundles)")
    parser.add_argument("--force", action="store_true", help="build also what is up to date")
    return parser


if __name__ == "__main__":
    # Building needs no accelerator, and must not take the memory of one that serves.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    raise SystemExit(main())
