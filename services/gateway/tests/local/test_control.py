"""ControlService through a gateway: compaction goes to all workers, the rest is each worker's own."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from reactant_core.errors import ModelUnavailable, Unimplemented
from reactant_core.testing import async_test
from reactant_proto import control_pb2 as pb


def compaction(moved: int, used: int, free: int, summary: str = "moved") -> pb.CompactMemoryResponse:
    return pb.CompactMemoryResponse(
        moved_bytes=moved,
        bytes_in_use_before=used,
        bytes_in_use_after=used - 1,
        largest_free_block_before=free,
        largest_free_block_after=free * 2,
        summary=summary,
    )


@async_test
async def test_every_ready_worker_compacts_and_is_told_of(node: Any) -> None:
    async with node({}, {}, {}, dead=(1,)) as n:
        n.workers[0].compaction = compaction(10, 100, 7)
        n.workers[2].compaction = compaction(5, 50, 8)

        answer = await n.control.CompactMemory(pb.CompactMemoryRequest(), timeout=7)

        assert (answer.moved_bytes, answer.bytes_in_use_before, answer.bytes_in_use_after) == (15, 150, 148)
        assert (answer.largest_free_block_before, answer.largest_free_block_after) == (8, 16)
        assert answer.summary == "2 workers: moved"
        assert [(one.worker, one.result, one.error) for one in answer.workers] == [
            ("worker0", n.workers[0].compaction, ""),
            ("worker2", n.workers[2].compaction, ""),
        ]
        assert n.workers[0].hops == ["1"]
        assert n.workers[0].remaining == [pytest.approx(7, abs=2)]


@async_test
async def test_one_that_fails_costs_the_others_nothing(node: Any) -> None:
    async with node({}, {}, {}) as n:
        n.workers[1].failing["CompactMemory"] = ModelUnavailable("the device is not there yet")
        n.workers[2].compaction = compaction(5, 50, 8)

        answer = await n.control.CompactMemory(pb.CompactMemoryRequest())

        assert answer.summary == "1 worker: nothing to move; 1 worker: moved; 1 failed"
        assert [one.error for one in answer.workers] == ["", "UNAVAILABLE: the device is not there yet", ""]
        assert not answer.workers[1].HasField("result")


@async_test
async def test_when_all_fail_it_fails(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        n.workers[0].failing["CompactMemory"] = n.workers[1].failing["CompactMemory"] = Unimplemented("no")
        error = await failure(n.control.CompactMemory(pb.CompactMemoryRequest()))
        assert (error.code(), error.details()) == (grpc.StatusCode.UNIMPLEMENTED, "no")

        n.fleet.lost("worker0", "gone")
        n.fleet.lost("worker1", "gone")
        error = await failure(n.control.CompactMemory(pb.CompactMemoryRequest()))
        assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "no worker is ready")


@async_test
async def test_compaction_ends_at_the_clients_deadline(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        n.workers[0].hanging.add("CompactMemory")
        call = asyncio.ensure_future(n.control.CompactMemory(pb.CompactMemoryRequest(), timeout=0.1))
        assert (await failure(call)).code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("rpc", ["ModelControlStatus", "SetModelPolicy", "SetModelResidency"])
@async_test
async def test_what_is_one_workers_is_refused_by_name(node: Any, failure: Any, rpc: str) -> None:
    async with node({}) as n:
        error = await failure(getattr(n.control, rpc)(getattr(pb, f"{rpc}Request")()))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert error.details().startswith(
            f"{rpc} is a worker's, and this is a gateway: ask the worker itself"
        )
        assert not n.workers[0].calls
