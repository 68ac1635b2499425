"""Where a gateway spends its time under the load of the `gateway` benchmark, by cProfile.

Calls of small functions look dearer than they are: use it to find what to look at, the benchmark to judge.
"""

from __future__ import annotations

import argparse
import os
import pstats
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import gateway, h2load, processes, proxies


def main(arguments: Sequence[str]) -> int:
    """Command-line entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--body", choices=tuple(gateway.SHAPES), default="64 B")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--lines", type=int, default=40)
    options = parser.parse_args(arguments)
    first, *others = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name, processes.on_cores(set(others) or {first}):
        folder = Path(name)
        profile = folder / "profile"
        body = h2load.write_body(folder / "body", gateway.request(gateway.SHAPES[options.body]))
        launcher = (sys.executable, "-m", "cProfile", "-o", str(profile))
        with (
            gateway.workers() as ports,
            processes.on_cores({first}),
            proxies.gateway(ports, launcher=launcher) as proxy,
        ):
            os.sched_setaffinity(0, set(others) or {first})
            load = h2load.run(
                proxy.port,
                gateway.METHOD,
                body,
                requests=options.requests,
                concurrency=options.concurrency,
                log=folder / "log",
            )
            print(f"{load.requests_per_second:.0f} requests/s under the profiler, {load.failed} failed")
        pstats.Stats(str(profile)).strip_dirs().sort_stats("tottime").print_stats(options.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
