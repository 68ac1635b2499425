"""`python -m tests.fuzz`: sends malformed HTTP/2 and gRPC to a gateway; exit code 1 when it took harm."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.fuzz.run import fuzz


def main() -> int:
    """Runs and prints the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="how many (%(default)s)")
    parser.add_argument("--seed", default=None, help="of an earlier run, to repeat it; random otherwise")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first input, to narrow a fault down"
    )
    parser.add_argument("--growth-mb", type=int, default=30, help="memory may grow by so much (%(default)s)")
    parser.add_argument("--logs", type=Path, default=None, help="an empty folder for logs, which are kept")
    given = parser.parse_args()
    seed = given.seed or secrets.token_hex(4)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="reactant-fuzz-") as folder:
        report = fuzz(
            given.logs or Path(folder),
            seed=seed,
            inputs=given.inputs,
            first=given.first,
            growth_bytes=given.growth_mb * 1_000_000,
        )
    print(report)
    print(f"repeat with: python -m tests.fuzz --seed {seed} --inputs {given.inputs} --first {given.first}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
