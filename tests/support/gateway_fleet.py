"""Gateways whose workers are stand-ins, or are killed and started again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.fleet import gateway_process
from tests.support.process import ServerProcess

from reactant_core.testing import eventually_sync, free_port

ROOT = Path(__file__).resolve().parents[2]
IMPATIENT = {
    "REACTANT_GATEWAY_WORKER_CLIENT_PROBE_SECONDS": "0.3",
    "REACTANT_GATEWAY_WORKER_CLIENT_PROBE_TIMEOUT_SECONDS": "0.3",
    "REACTANT_GATEWAY_WORKER_CLIENT_PING_SECONDS": "0.2",
    "REACTANT_GATEWAY_WORKER_CLIENT_PING_TIMEOUT_SECONDS": "0.4",
}
"""A gateway that notices a silent worker in a second, where it would take ten or so."""


def stand_in_process(*arguments: str, log: Path, port: int | None = None) -> ServerProcess:
    """A worker of a few lines (`gateway_stand_in`), not yet started; it has no HTTP port.

    Args:
        arguments: of its command line, without the port.
        log: its log file.
        port: its gRPC port; a free one by default.
    """
    port = free_port() if port is None else port
    command = ["-m", "tests.support.gateway_stand_in", str(port), *arguments]
    return ServerProcess(command, {"PYTHONPATH": str(ROOT)}, log=log, port=port, http_port=0)


def gateway_of(
    workers: Sequence[ServerProcess], *, log: Path, environ: Mapping[str, str] | None = None
) -> ServerProcess:
    """A gateway that leaves the workers' metrics pages alone, not yet started."""
    return gateway_process(
        workers, log=log, environ={"REACTANT_GATEWAY_METRICS_ENDPOINTS": "", **(environ or {})}
    )


def ready_workers(gateway: ServerProcess) -> set[str]:
    """The workers that get requests, as `/readyz` has it."""
    workers = gateway.get("/readyz").json()["workers"]
    return {name for name, state in workers.items() if state == "ready"}


def wait_workers(gateway: ServerProcess, names: set[str], seconds: float = 20.0) -> None:
    """Until these workers and no others get requests."""
    eventually_sync(lambda: ready_workers(gateway) == names, seconds, what=f"ready are {names}")


def start_again(process: ServerProcess) -> None:
    """Starts a process that has ended, with the same command, ports and log."""
    process.wait()
    process.__enter__()
