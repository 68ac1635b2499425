"""Which workers are asked to compact, and when."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from reactant_core.config.gateway_sections import SchedulingConfig
from reactant_core.packing.compaction import Compaction
from reactant_core.testing import async_test, eventually
from reactant_gateway.packing.compactor import Compactor
from reactant_policy.placement.model import Move, Plan
from reactant_proto import control_pb2

MOVED = Plan({}, moves=(Move("m", ("a",), ("b",), 1, "balance"), Move("n", (), ("c",), 1, "replicas")))
OTHER = Plan({}, moves=(Move("m", ("b",), ("d",), 1, "balance"),))


@pytest.mark.parametrize(
    ("mode", "interval", "asked"),
    [
        ("eager", 1, [{"a", "b", "c"}, {"b", "d"}, {"b", "d"}]),
        ("scheduled", 1, [{"a", "b", "c"}, {"b", "d"}, {"b", "d"}]),
        ("eager", 2, [{"a", "b", "c", "d"}]),
        ("eager", 9, []),
        ("off", 1, []),
    ],
)
def test_every_so_many_placements_that_changed_something(
    mode: Any, interval: int, asked: list[set[str]]
) -> None:
    told: list[set[str]] = []
    compaction = Compaction(lambda workers: told.append(set(workers)))
    config = SchedulingConfig(compaction_mode=mode, compaction_interval=interval)
    for plan in (Plan({}), MOVED, Plan({}), OTHER, OTHER):
        compaction.placed(plan, config)
    assert told == asked


class Control:
    """A worker's ControlService that compacts when it is let."""

    def __init__(self, name: str, running: set[str], most: list[int], *, fails: bool = False) -> None:
        self.name = name
        self.ready = True
        self.control = self
        self.calls = 0
        self.go = asyncio.Event()
        self._running, self._most, self._fails = running, most, fails

    async def CompactMemory(  # noqa: N802
        self, request: control_pb2.CompactMemoryRequest, **call: Any
    ) -> control_pb2.CompactMemoryResponse:
        self.calls += 1
        self._running.add(self.name)
        self._most.append(len(self._running))
        await self.go.wait()
        self._running.remove(self.name)
        if self._fails:
            empty = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, empty, empty, "no device")
        return control_pb2.CompactMemoryResponse()


@async_test
async def test_one_after_the_other_and_a_failure_stops_nobody() -> None:
    running: set[str] = set()
    most: list[int] = []
    workers = [Control(name, running, most, fails=name == "a") for name in "abc"]
    away = Control("away", running, most)
    away.ready = False
    compactor = Compactor(lambda: cast(Any, [*workers, away]))
    compactor({"c", "a", "away", "unknown"})
    await eventually(lambda: workers[0].calls)
    compactor({"a", "b"})
    for worker in workers:
        worker.go.set()
    await eventually(lambda: [worker.calls for worker in workers] == [2, 1, 1])
    assert (away.calls, max(most)) == (0, 1)
    await compactor.close()
