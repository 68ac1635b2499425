"""Entry point of the supervisor's process."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

_GRPC_FORK_HANDLERS = "GRPC_ENABLE_FORK_SUPPORT"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `reactant-supervisor`.

    Returns:
        0 after a clean stop; 78 when the configuration is refused, here or by a child; 1 when a port is
        taken, a child is given up, or one did not stop by itself.
    """
    argparse.ArgumentParser(
        prog="reactant-supervisor",
        description="Starts ReactantServer on this machine and keeps it running. Configured by the node file "
        "that REACTANT_NODE_FILE names and by environment variables; `reactant config` shows them all.",
    ).parse_args(argv)
    environ = dict(os.environ)
    # gRPC's fork handlers are for children that go on to use it; ours become other programs at once, and
    # their start must not wait for what its threads do. Read when gRPC is imported; for this process alone.
    os.environ[_GRPC_FORK_HANDLERS] = "0"
    from reactant_supervisor.output import LineOutput
    from reactant_supervisor.run import run

    output = LineOutput(sys.stderr.fileno())
    output.start()
    try:
        return run(environ, output)
    finally:
        output.close()
