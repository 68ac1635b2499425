"""One run of the fuzzer against a gateway of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tests.fuzz.drive import Driver, Tally
from tests.fuzz.gateway import FuzzedGateway, Vitals, fuzzed_gateway
from tests.fuzz.neighbour import Neighbour
from tests.support.process import HOST

WARM_UP: Final = 2000
"""Inputs before memory is looked at first."""

_REPORT_SECONDS: Final = 10.0


@final
@dataclass(frozen=True, slots=True)
class Report:
    """What a run saw; see `faults`.

    Attributes:
        tally: of the driver.
        seconds: it took.
        before: after the warm-up.
        after: when all was over.
        calls: of the neighbour.
        slowest_seconds: the slowest of them.
        faults: what must not have happened, in words.
    """

    tally: Tally
    seconds: float
    before: Vitals
    after: Vitals
    calls: int
    slowest_seconds: float
    faults: tuple[str, ...]

    def __str__(self) -> str:
        growth = (self.after.resident_bytes - self.before.resident_bytes) / 1e6
        lines = [
            f"{self.tally.inputs} inputs on {self.tally.connections} connections in {self.seconds:.0f} s "
            f"({self.tally.inputs / self.seconds:.0f}/s)",
            f"connections ended: {dict(self.tally.ends)}",
            f"memory {self.before.resident_bytes / 1e6:.0f} MB after the warm-up, {growth:+.1f} MB since",
            f"neighbour: {self.calls} calls, slowest {self.slowest_seconds * 1e3:.0f} ms",
            *(f"FAULT: {fault}" for fault in self.faults),
        ]
        return "\n".join(lines)


def fuzz(
    folder: Path,
    *,
    seed: str,
    inputs: int,
    first: int = 0,
    growth_bytes: int,
    say: Callable[[str], None] = print,
) -> Report:
    """Sends `inputs` inputs of a run to a fresh gateway, those from number `first` on.

    Args:
        folder: for logs.
        seed: the same gives the same inputs.
        inputs: how many.
        first: number of the first.
        growth_bytes: memory may grow by so much after the warm-up.
        say: gets a line now and then.
    """
    with fuzzed_gateway(folder, {"PYTHONFAULTHANDLER": "1"}) as gateway:
        process = gateway.process
        idle = before = after = gateway.vitals()
        driver = Driver(HOST, process.port, seed)
        faults: list[str] = []
        began = time.monotonic()
        with Neighbour(process.address) as neighbour:
            warm = min(WARM_UP, inputs // 3)
            asyncio.run(_drive(driver, range(first, first + warm), say))
            if process.running:
                before = gateway.vitals()
                asyncio.run(_drive(driver, range(first + warm, first + inputs), say))
            if process.running:
                faults += _unsettled(gateway, idle.fds + 1, connections=1)
        seconds = time.monotonic() - began
        if process.running:
            faults += _unsettled(gateway, idle.fds, connections=0)
            after = gateway.vitals()
            code = process.stop()
            if code != 0:
                faults.append(f"exit code {code} after SIGTERM")
        else:
            faults.append(f"the gateway ended with {process.wait(0)}")
        if driver.tally.refused:
            faults.append("a connection was refused")
        if after.resident_bytes - before.resident_bytes > growth_bytes:
            faults.append(f"memory grew by more than {growth_bytes / 1e6:.0f} MB")
        faults += [f"neighbour: {count}× {outcome}" for outcome, count in neighbour.failures.items()]
        events = gateway.faults()
        faults += [f"log ({len(events)} such lines): {str(event)[-1500:]}" for event in events[:3]]
        return Report(
            driver.tally,
            seconds,
            before,
            after,
            neighbour.outcomes.total(),
            neighbour.slowest,
            tuple(faults),
        )


def _unsettled(gateway: FuzzedGateway, fds: int, connections: int) -> list[str]:
    try:
        gateway.wait_settled(fds, connections)
    except AssertionError as error:
        return [str(error)]
    return []


async def _drive(driver: Driver, numbers: range, say: Callable[[str], None]) -> None:
    running = asyncio.create_task(driver.run(numbers))
    while not (await asyncio.wait({running}, timeout=_REPORT_SECONDS))[0]:
        say(f"{driver.tally.inputs} inputs")
    running.result()
