"""Shared-memory regions: on every worker of the host or on none, and again on one that restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from reactant_core.errors import InvalidArgument
from reactant_core.testing import async_test, eventually
from reactant_proto import inference_pb2 as pb

R: Any = ("key", 4, 64)


def register(n: Any, name: str = "R", key: str = "key", size: int = 64, **options: Any) -> Any:
    request = pb.SystemSharedMemoryRegisterRequest(name=name, key=key, offset=4, byte_size=size)
    return n.stub.SystemSharedMemoryRegister(request, **options)


def unregister(n: Any, name: str = "") -> Any:
    return n.stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest(name=name))


async def status(n: Any, name: str = "") -> dict[str, tuple[str, int, int]]:
    answer = await n.stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest(name=name))
    return {name: (told.key, told.offset, told.byte_size) for name, told in answer.regions.items()}


def held(n: Any) -> list[dict[str, Any]]:
    return [worker.regions for worker in n.workers]


@async_test
async def test_register_and_unregister_reach_every_worker_of_this_host(node: Any) -> None:
    async with node({}, {}, {}, remote=(2,)) as n:
        await register(n)
        await register(n, "S")
        assert held(n) == [{"R": R, "S": R}, {"R": R, "S": R}, {}]
        assert n.book.holders("R") == {"worker0", "worker1"}
        assert await status(n) == {"R": R, "S": R}
        assert await status(n, "R") == {"R": R}

        await unregister(n, "R")
        await unregister(n, "unknown")

        assert held(n) == [{"S": R}, {"S": R}, {}]
        assert n.book.holders("R") == frozenset()
        await unregister(n)
        assert held(n) == [{}, {}, {}]
        assert await status(n) == {}


@async_test
async def test_an_unknown_region_has_its_trailer(node: Any, failure: Any) -> None:
    async with node({}) as n:
        error = await failure(status(n, "Rü"))
        assert (error.code(), error.details()) == (
            grpc.StatusCode.NOT_FOUND,
            "shared-memory region 'Rü' is not registered",
        )
        assert dict(error.trailing_metadata()) == {"reactant-unknown-region": "R\\xfc"}


@async_test
async def test_the_book_says_what_is_taken(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        n.workers[1].regions["R"] = ("left by an earlier gateway", 0, 1)
        await register(n)
        assert held(n) == [{"R": R}, {"R": R}]
        error = await failure(register(n, key="other"))
        assert (error.code(), error.details()) == (
            grpc.StatusCode.ALREADY_EXISTS,
            "shared-memory region 'R' is already registered",
        )


@async_test
async def test_what_all_refuse_comes_as_it_is(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        for worker in n.workers:
            worker.failing["SystemSharedMemoryRegister"] = InvalidArgument("no such object")
        error = await failure(register(n))
        assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "no such object")
        assert await status(n) == {}


@async_test
async def test_an_empty_name_is_refused_before_any_worker(node: Any, failure: Any) -> None:
    async with node({}) as n:
        assert (await failure(register(n, ""))).code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not n.workers[0].calls


@async_test
async def test_a_partial_failure_is_rolled_back(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        n.workers[1].failing["SystemSharedMemoryRegister"] = InvalidArgument("no such object")
        error = await failure(register(n))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "worker1: no such object" in error.details()
        assert held(n) == [{}, {}]
        assert n.book.holders("R") == frozenset()
        n.workers[1].failing.clear()
        await register(n)
        assert held(n) == [{"R": R}, {"R": R}]


@pytest.mark.slow
@async_test
async def test_a_ready_worker_that_hangs_fails_it_for_all(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        n.workers[0].hanging.add("SystemSharedMemoryRegister")
        error = await failure(register(n))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "worker0: " in error.details()
        assert held(n) == [{}, {}]


@async_test
async def test_no_worker_on_this_host(node: Any, failure: Any) -> None:
    async with node({}, remote=(0,)) as n:
        error = await failure(register(n))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "host" in error.details()
        await unregister(n)


@async_test
async def test_a_worker_out_of_reach_gets_it_when_it_comes_back(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        await n.workers[1].kill()  # nobody has noticed yet

        await register(n)

        assert n.fleet.losses == ["worker1"]
        assert n.book.holders("R") == {"worker0"}
        await register(n, "S")
        assert n.fleet.losses == ["worker1"]
        await n.restart(1)
        await n.book.replay(n.handle(1))
        assert held(n) == [{"R": R, "S": R}] * 2
        assert n.book.holders("R") == n.book.holders("S") == {"worker0", "worker1"}
        # Its regions are kept up from its replay on, not from when it is next seen ready.
        assert not n.handle(1).ready
        await register(n, "T")
        assert n.book.holders("T") == {"worker0", "worker1"}
        for worker in n.workers:
            await worker.kill()
        assert (await failure(register(n, "U"))).code() is grpc.StatusCode.UNAVAILABLE


@async_test
async def test_a_restarted_worker_is_brought_up_to_date(node: Any) -> None:
    async with node({}, {}) as n:
        await register(n)
        await n.restart(0)
        assert held(n) == [{}, {"R": R}]
        await n.book.replay(n.handle(0))
        assert held(n) == [{"R": R}, {"R": R}]
        assert n.book.holders("R") == {"worker0", "worker1"}


@async_test
async def test_a_worker_that_kept_its_regions_is_left_alone(node: Any) -> None:
    async with node({}, {}) as n:
        await register(n)
        n.fleet.lost("worker0", "a hiccup")
        await n.book.replay(n.handle(0))
        assert n.workers[0].count("SystemSharedMemoryRegister") == 1
        await n.book.replay(n.handle(1))
        n.workers[0].regions["R"] = ("other", 0, 1)
        await n.book.replay(n.handle(0))
        assert held(n) == [{"R": R}, {"R": R}]


@async_test
async def test_what_a_worker_missed_is_taken_from_it(node: Any) -> None:
    async with node({}, {}) as n:
        await register(n)
        n.workers[0].hanging.add("SystemSharedMemoryUnregister")
        n.fleet.lost("worker0", "hangs")
        await unregister(n, "R")
        assert held(n) == [{"R": R}, {}]
        n.workers[0].hanging.clear()
        n.workers[0].regions["own"] = R

        await n.book.replay(n.handle(0))

        assert held(n) == [{"own": R}, {}]


@async_test
async def test_a_region_that_cannot_be_had_any_more_is_left_out(node: Any) -> None:
    async with node({}, {}) as n:
        await register(n)
        await register(n, "S")
        await n.restart(0)
        n.workers[0].failing["SystemSharedMemoryRegister"] = InvalidArgument("no such object")
        await n.book.replay(n.handle(0))
        assert n.book.holders("R") == n.book.holders("S") == {"worker1"}
        assert not n.fleet.losses


@async_test
async def test_an_object_made_anew_is_not_mixed_with_the_old(node: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"old")
    (tmp_path / "new").write_bytes(b"new")
    async with node({}, {}) as n:
        await register(n)
        await n.restart(0)
        (tmp_path / "new").rename(tmp_path / "key")

        await n.book.replay(n.handle(0))

        assert held(n) == [{}, {"R": R}]
        assert n.book.holders("R") == {"worker1"}
        await unregister(n, "R")
        await register(n)
        assert n.book.holders("R") == {"worker0", "worker1"}


@async_test
async def test_a_replay_to_a_worker_that_is_gone_again_loses_it(node: Any) -> None:
    async with node({}, {}) as n:
        await register(n)
        await n.workers[0].kill()
        await n.book.replay(n.handle(0))
        assert n.fleet.losses == ["worker0"]


@async_test
async def test_nothing_is_asked_of_a_worker_when_there_is_nothing_to_replay(node: Any) -> None:
    async with node({}, {}, remote=(1,)) as n:
        await n.book.replay(n.handle(0))
        await register(n)
        n.workers[1].calls.clear()
        await n.book.replay(n.handle(1))
        assert n.workers[0].count("SystemSharedMemoryStatus") == 0
        assert not n.workers[1].calls


@async_test
async def test_one_name_at_a_time(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        results = await asyncio.gather(*(register(n, size=i) for i in range(1, 9)), return_exceptions=True)
        won = [size for size, result in enumerate(results, 1) if not isinstance(result, Exception)]
        assert len(won) == 1
        assert held(n) == [{"R": ("key", 4, won[0])}] * 2
        for result in results:
            if isinstance(result, grpc.aio.AioRpcError):
                assert result.code() is grpc.StatusCode.ALREADY_EXISTS


@async_test
async def test_a_client_that_leaves_does_not_leave_half_a_region(node: Any) -> None:
    async with node({}, {}) as n:
        n.workers[0].hanging.add("SystemSharedMemoryRegister")
        call = register(n)
        await eventually(lambda: n.workers[0].calls and n.workers[1].regions)
        call.cancel()
        await eventually(lambda: held(n) == [{}, {}], what="the roll-back is done all the same")
        assert await status(n) == {}
