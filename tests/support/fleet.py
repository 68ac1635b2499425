"""A gateway in front of several workers, as one server."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, final

from tests.support.process import HOST, READY_SECONDS, STOP_SECONDS, HttpAnswer, ServerProcess

from reactant_core.testing import eventually_sync, free_port


def gateway_process(
    workers: Sequence[ServerProcess], *, log: Path, environ: Mapping[str, str] | None = None
) -> ServerProcess:
    """A gateway in front of `workers`, not yet started.

    Args:
        workers: called worker0, worker1, … in this order.
        log: its log file.
        environ: further variables.
    """
    port, http_port = free_port(), free_port()
    settings = {
        "REACTANT_GATEWAY_LISTEN_HOST": HOST,
        "REACTANT_GATEWAY_LISTEN_PORT": str(port),
        "REACTANT_GATEWAY_LISTEN_METRICS_PORT": str(http_port),
        "REACTANT_GATEWAY_WORKERS": ",".join(worker.address for worker in workers),
        "REACTANT_GATEWAY_METRICS_ENDPOINTS": ",".join(f"{HOST}:{worker.http_port}" for worker in workers),
        "REACTANT_GATEWAY_WORKER_NAMES": ",".join(f"worker{index}" for index in range(len(workers))),
        "REACTANT_GATEWAY_LAMEDUCK_SECONDS": "0",
        "REACTANT_LOG_FORMAT": "json",
        **(environ or {}),
    }
    return ServerProcess(["-m", "reactant_gateway"], settings, log=log, port=port, http_port=http_port)


@final
class Fleet:
    """What a client meets at the gateway's address; the same questions as to a `ServerProcess`.

    Args:
        gateway: the process in front.
        workers: the ones behind it.
    """

    def __init__(self, gateway: ServerProcess, workers: Sequence[ServerProcess]) -> None:
        self.gateway = gateway
        self.workers = tuple(workers)
        self.replicas = len(self.workers)
        self.address = gateway.address
        self.port = gateway.port
        self._stack = ExitStack()

    def __enter__(self) -> Fleet:
        for process in (*self.workers, self.gateway):
            self._stack.enter_context(process)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def running(self) -> bool:
        """None of its processes has ended."""
        return all(process.running for process in (self.gateway, *self.workers))

    def get(self, path: str, **options: Any) -> HttpAnswer:
        """GETs from the gateway's HTTP port."""
        return self.gateway.get(path, **options)

    def wait_listening(self, seconds: float = READY_SECONDS) -> None:
        """Until the gateway's HTTP port answers."""
        self.gateway.wait_listening(seconds)

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Until the gateway has found every worker ready."""
        for worker in self.workers:
            worker.wait_ready(seconds)
        self.gateway.wait_ready(seconds)
        eventually_sync(self._complete, seconds, what="the gateway has every worker")

    def _complete(self) -> bool:
        return set(self.get("/readyz").json()["workers"].values()) == {"ready"}

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the gateway."""
        self.gateway.signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """The gateway's exit code."""
        return self.gateway.wait(seconds)

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """Stops the gateway, then the workers; the first exit code that is not 0."""
        return next((code for one in (self.gateway, *self.workers) if (code := one.stop(seconds))), 0)

    def resident_bytes(self) -> int:
        """Resident memory of all processes."""
        return sum(process.resident_bytes() for process in (self.gateway, *self.workers))

    def events(self) -> list[dict[str, Any]]:
        """The logs of all processes, one after the other."""
        return [event for process in (self.gateway, *self.workers) for event in process.events()]

    def tail(self) -> str:
        """The ends of all logs."""
        return "\n".join(process.tail() for process in (self.gateway, *self.workers))
