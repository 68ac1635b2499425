"""RPCs about models, of workers that agree, differ, are dead or hang."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

from reactant_core.errors import FailedPrecondition, ModelUnavailable
from reactant_core.testing import async_test
from reactant_proto import inference_pb2 as pb

ECHO = {"echo": "READY"}
PER_MODEL = {
    "ModelReady": pb.ModelReadyRequest,
    "ModelMetadata": pb.ModelMetadataRequest,
    "ModelConfig": pb.ModelConfigRequest,
    "ModelStatistics": pb.ModelStatisticsRequest,
}


async def index(n: Any, **fields: Any) -> dict[str, tuple[str, str]]:
    response = await n.stub.RepositoryIndex(pb.RepositoryIndexRequest(**fields), timeout=5)
    return {model.name: (model.state, model.reason) for model in response.models}


def code(error: grpc.aio.AioRpcError) -> str:
    return error.code().name


@pytest.mark.parametrize("rpc", PER_MODEL)
@async_test
async def test_an_unknown_model_is_looked_for_once(node: Any, failure: Any, rpc: str) -> None:
    async with node(ECHO, ECHO) as n:
        error = await failure(getattr(n.stub, rpc)(PER_MODEL[rpc](name="nope")))

        assert (code(error), error.details()) == ("NOT_FOUND", "model 'nope' is not found")
        assert dict(error.trailing_metadata())["reactant-not-started"] == "1"
        assert n.fleet.refreshes == [False]
        assert not n.workers[0].calls


@pytest.mark.parametrize("rpc", PER_MODEL)
@async_test
async def test_a_model_that_has_just_come_is_found(node: Any, rpc: str) -> None:
    async with node({}, {}) as n:
        n.workers[1].models["new"] = ("READY", "")
        await getattr(n.stub, rpc)(PER_MODEL[rpc](name="new"))
        assert n.fleet.refreshes == [False]


@pytest.mark.parametrize("rpc", PER_MODEL)
@async_test
async def test_without_a_worker_nobody_knows(node: Any, failure: Any, rpc: str) -> None:
    async with node(ECHO, dead=(0,)) as n:
        n.fleet.handles[0].view.models.clear()
        n.workers[0].models.clear()
        n.fleet.look()
        error = await failure(getattr(n.stub, rpc)(PER_MODEL[rpc](name="echo")))
        assert (code(error), error.details()) == ("UNAVAILABLE", "no worker is ready")


@pytest.mark.parametrize("rpc", PER_MODEL)
@async_test
async def test_what_the_workers_say_of_a_version_is_passed_on(node: Any, failure: Any, rpc: str) -> None:
    async with node(ECHO, ECHO, {}) as n:
        for worker in n.workers:
            worker.failing[rpc] = FailedPrecondition("no version '2'")
        error = await failure(getattr(n.stub, rpc)(PER_MODEL[rpc](name="echo", version="2")))
        assert (code(error), error.details()) == ("FAILED_PRECONDITION", "no version '2'")
        assert not n.workers[2].calls
        assert set(n.workers[0].hops) == {"1"}


@pytest.mark.parametrize("rpc", ["ModelMetadata", "ModelConfig"])
@async_test
async def test_the_next_replica_is_asked_when_one_fails_or_hangs(node: Any, rpc: str) -> None:
    async with node(ECHO, ECHO, ECHO) as n:
        await n.workers[0].kill()
        n.workers[1].hanging.add(rpc)
        answer = await getattr(n.stub, rpc)(PER_MODEL[rpc](name="echo"), timeout=5)
        told = answer.platform if rpc == "ModelMetadata" else answer.config.platform
        assert told == "worker2"


@async_test
async def test_a_replica_that_has_it_ready_comes_first(node: Any, failure: Any) -> None:
    async with node({"echo": "LOADING"}, ECHO) as n:
        request = pb.ModelMetadataRequest(name="echo")
        assert (await n.stub.ModelMetadata(request)).platform == "worker1"
        assert not n.workers[0].calls
        await n.workers[1].kill()
        n.fleet.look()
        n.workers[0].failing["ModelMetadata"] = ModelUnavailable("model 'echo' is loading", not_started=True)
        error = await failure(n.stub.ModelMetadata(request))
        assert (code(error), error.details()) == ("UNAVAILABLE", "model 'echo' is loading")
        assert dict(error.trailing_metadata())["reactant-not-started"] == "1"


@async_test
async def test_model_ready_is_any_worker(node: Any) -> None:
    async with node({"echo": "LOADING"}, ECHO, ECHO, patience=60) as n:
        n.workers[2].hanging.add("ModelReady")
        request = pb.ModelReadyRequest(name="echo")
        assert (await n.stub.ModelReady(request, timeout=5)).ready


@async_test
async def test_model_ready_of_workers_that_say_no_or_nothing(node: Any) -> None:
    async with node({"echo": "LOADING"}, ECHO) as n:
        n.workers[1].hanging.add("ModelReady")
        assert not (await n.stub.ModelReady(pb.ModelReadyRequest(name="echo"), timeout=5)).ready


@async_test
async def test_model_ready_before_the_table_says_so_makes_the_table_look(node: Any) -> None:
    async with node({"echo": "LOADING"}) as n:
        n.workers[0].models["echo"] = ("READY", "")
        assert (await n.stub.ModelReady(pb.ModelReadyRequest(name="echo"))).ready
        assert n.fleet.router.find("echo").candidates == ("worker0",)


@async_test
async def test_model_ready_is_false_when_its_workers_are_away(node: Any) -> None:
    async with node(ECHO, {}, dead=(0,)) as n:
        assert not (await n.stub.ModelReady(pb.ModelReadyRequest(name="echo"))).ready


@async_test
async def test_statistics_of_all_that_answer(node: Any) -> None:
    async with node(ECHO, ECHO, {"echo": "READY", "more": "READY"}, ECHO, dead=(3,)) as n:
        n.workers[1].hanging.add("ModelStatistics")
        began = time.monotonic()
        everything = await n.stub.ModelStatistics(pb.ModelStatisticsRequest())
        assert {m.name: m.inference_count for m in everything.model_stats} == {"echo": 10, "more": 5}
        (echo,) = (await n.stub.ModelStatistics(pb.ModelStatisticsRequest(name="echo"))).model_stats
        assert echo.inference_count == 10
        assert time.monotonic() - began < 3


@async_test
async def test_a_read_ends_at_the_clients_deadline(node: Any, failure: Any) -> None:
    async with node(ECHO, ECHO) as n:
        for worker in n.workers:
            worker.hanging |= {"ModelStatistics", "ModelMetadata"}
        for call in (
            n.stub.ModelStatistics(pb.ModelStatisticsRequest(), timeout=0.1),
            n.stub.ModelMetadata(pb.ModelMetadataRequest(name="echo"), timeout=0.1),
        ):
            assert code(await failure(call)) == "DEADLINE_EXCEEDED"


@async_test
async def test_workers_are_told_how_long_a_call_may_take(node: Any) -> None:
    async with node(ECHO) as n:
        for seconds in (5, 60, None):
            await n.stub.ModelStatistics(pb.ModelStatisticsRequest(), timeout=seconds)
            await n.stub.RepositoryModelLoad(load("echo"), timeout=seconds)
        read_5, load_5, read_60, load_60, read, loaded = n.workers[0].remaining
        assert [read_5, load_5] == pytest.approx([5, 5], abs=2)
        assert [read_60, read] == pytest.approx([10, 10], abs=2)
        assert load_60 == pytest.approx(60, abs=2)
        assert loaded is None


@async_test
async def test_the_index_is_everybodys(node: Any, failure: Any) -> None:
    async with node(ECHO, {"echo": "READY", "more": "LOADING"}, ECHO, ECHO) as n:
        await n.workers[2].kill()
        n.workers[3].hanging.add("RepositoryIndex")
        away = "; ".join(f"worker{i}: UNAVAILABLE: the worker does not answer" for i in (2, 3))
        assert await index(n) == {
            "echo": ("READY", away),
            "more": ("LOADING", "worker0: UNAVAILABLE: no such model"),
        }
        assert (await index(n, ready=True)).keys() == {"echo"}
        for worker in n.workers:
            await worker.kill()
        assert code(await failure(index(n))) == "UNAVAILABLE"


@async_test
async def test_the_index_of_workers_that_agree_is_theirs(node: Any) -> None:
    async with node(ECHO, ECHO) as n:
        assert await index(n) == {"echo": ("READY", "")}


def load(name: str) -> pb.RepositoryModelLoadRequest:
    return pb.RepositoryModelLoadRequest(model_name=name)


def unload(name: str) -> pb.RepositoryModelUnloadRequest:
    return pb.RepositoryModelUnloadRequest(model_name=name)


@async_test
async def test_load_and_unload_reach_all_and_the_table_follows(node: Any) -> None:
    async with node({}, {}, {}, dead=(2,)) as n:
        await n.stub.RepositoryModelLoad(load("new"))
        assert n.fleet.router.find("new").candidates == ("worker0", "worker1")
        await n.stub.RepositoryModelUnload(unload("new"))
        assert n.fleet.router.find("new").candidates == ()
        assert n.fleet.refreshes == [True, True]
        assert not n.workers[2].calls


@async_test
async def test_load_that_fails_on_some_names_them(node: Any, failure: Any) -> None:
    async with node({}, {}, {}) as n:
        n.workers[1].failing["RepositoryModelLoad"] = FailedPrecondition("broken")
        await n.workers[2].kill()
        error = await failure(n.stub.RepositoryModelLoad(load("new")))
        assert code(error) == "FAILED_PRECONDITION"
        assert error.details().startswith("2 of 3 workers failed: worker1: broken; worker2: ")
        assert n.fleet.router.find("new").candidates == ("worker0",)


@async_test
async def test_what_all_refuse_alike_comes_as_it_is(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        for worker in n.workers:
            for rpc in ("RepositoryModelLoad", "RepositoryModelUnload"):
                worker.failing[rpc] = ModelUnavailable("model_control_mode is dynamic")
        for call in (n.stub.RepositoryModelLoad(load("m")), n.stub.RepositoryModelUnload(unload("m"))):
            error = await failure(call)
            assert (code(error), error.details()) == ("UNAVAILABLE", "model_control_mode is dynamic")


@async_test
async def test_unload_of_what_only_some_have(node: Any, failure: Any) -> None:
    async with node(ECHO, {}) as n:
        await n.stub.RepositoryModelUnload(unload("echo"))
        error = await failure(n.stub.RepositoryModelUnload(unload("nope")))
        assert (code(error), error.details()) == ("NOT_FOUND", "model 'nope' is not loaded")


@async_test
async def test_load_without_a_worker(node: Any, failure: Any) -> None:
    async with node({}, dead=(0,)) as n:
        assert code(await failure(n.stub.RepositoryModelLoad(load("m")))) == "UNAVAILABLE"


@async_test
async def test_load_waits_as_long_as_the_client(node: Any, failure: Any) -> None:
    async with node({}, {}) as n:
        n.workers[0].hanging.add("RepositoryModelLoad")
        call = asyncio.ensure_future(n.stub.RepositoryModelLoad(load("m"), timeout=0.2))
        assert code(await failure(call)) == "DEADLINE_EXCEEDED"
