"""The gateway under fuzzing, with stand-ins behind it, and what must hold of it afterwards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tests.support import metrics
from tests.support.gateway_fleet import gateway_of, stand_in_process, wait_workers
from tests.support.process import ServerProcess

from reactant_core.testing import eventually_sync

SETTLE_SECONDS = 10.0
SPARE_CONNECTIONS = 9
"""Three more than the first, to each worker and to the gateway's own server, may be opened and kept."""

_GRPCIO_TEXT = re.compile(
    r"Traceback|  File \"src/python/grpcio/|grpc\._cython\.cygrpc\.ExecuteBatchError|.* hpack_parser\.cc:"
)


@final
@dataclass(frozen=True, slots=True)
class Vitals:
    """A look at the process.

    Attributes:
        pid: of it.
        fds: file descriptors it has open.
        resident_bytes: its memory.
    """

    pid: int
    fds: int
    resident_bytes: int


@final
class FuzzedGateway:
    """A gateway process that serves the model `echo`."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process

    def vitals(self) -> Vitals:
        """As they are now."""
        pid = self.process.pid
        return Vitals(pid, len(os.listdir(f"/proc/{pid}/fd")), self.process.resident_bytes())

    def gauges(self) -> tuple[float, float]:
        """Requests in flight and client connections."""
        page = metrics.parse(self.process.get("/metrics").body)
        return page.value("gateway_inflight_requests"), page.value("gateway_connections")

    def wait_settled(self, fds: int, connections: int = 0) -> None:
        """Nothing is in flight, so many connections are open and hardly more than `fds` descriptors, soon."""
        fds += SPARE_CONNECTIONS

        def settled() -> bool:
            return self.gauges() == (0, connections) and self.vitals().fds <= fds

        try:
            eventually_sync(settled, SETTLE_SECONDS)
        except AssertionError:
            raise AssertionError(
                f"in flight and connections {self.gauges()}, wanted (0, {connections}); "
                f"descriptors {self.vitals().fds}, wanted at most {fds}"
            ) from None

    def faults(self) -> list[dict[str, Any]]:
        """What its log holds that no client may cause: errors, tracebacks, workers given up, other text.

        Passes over what grpcio, behind the methods that the gateway answers itself, says of headers and of
        clients that leave.
        """
        return [
            event
            for event in self.process.events()
            if not _of_grpcio(event)
            and (
                "text" in event
                or "exception" in event
                or event.get("level") in ("error", "critical")
                or event.get("event") in ("worker is unavailable", "drain timed out")
            )
        ]


def _of_grpcio(event: Mapping[str, Any]) -> bool:
    if "text" in event:
        # A traceback of several lines, none of them ours.
        return _GRPCIO_TEXT.match(event["text"]) is not None
    return str(event.get("event")).startswith("Failed sending error status from")


@contextmanager
def fuzzed_gateway(folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[FuzzedGateway]:
    """A gateway in front of two stand-ins, ready."""
    with ExitStack() as stack:
        workers = []
        for index in range(2):
            worker = stand_in_process(f"--name=w{index}", "--idempotent", log=folder / f"worker{index}.log")
            workers.append(stack.enter_context(worker))
        process = gateway_of(workers, log=folder / "gateway.log", environ=environ)
        stack.enter_context(process)
        process.wait_ready(30)
        wait_workers(process, {"worker0", "worker1"})
        yield FuzzedGateway(process)
