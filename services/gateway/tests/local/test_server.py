"""The server itself: socket, readiness, drain, health, reflection, and what is answered without a worker."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from reactant_core import logs
from reactant_core.errors import ModelUnavailable
from reactant_core.kserve.surface import EXTENSIONS, SERVER_NAME
from reactant_core.testing import async_test
from reactant_proto import inference_pb2 as pb

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


@async_test
async def test_the_socket_is_private_and_goes_with_the_server(node: Any, tmp_path: Path) -> None:
    async with node({}) as n:
        path = Path(n.address.removeprefix("unix:"))
        assert stat.S_ISSOCK(os.lstat(path).st_mode)
        assert stat.S_IMODE(os.lstat(path.parent).st_mode) == 0o700
        assert path.parent.parent == tmp_path
    assert not os.listdir(tmp_path)


def leave(parent: Path, name: str, *, age: float) -> socket.socket:
    """A folder as a gateway makes one, and the listener in it."""
    folder = parent / f"reactant-gateway-{name}"
    folder.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "local.sock"))
    listener.listen()
    then = time.time() - age
    os.utime(folder, (then, then))
    return listener


@async_test
async def test_what_killed_gateways_left_is_removed(node: Any, tmp_path: Path) -> None:
    leave(tmp_path, "dead", age=100).close()
    leave(tmp_path, "young", age=0).close()
    with leave(tmp_path, "alive", age=100):
        async with node():
            pass
        assert set(os.listdir(tmp_path)) == {"reactant-gateway-young", "reactant-gateway-alive"}


@async_test
async def test_server_rpcs(node: Any) -> None:
    async with node({}) as n:
        assert (await n.stub.ServerLive(pb.ServerLiveRequest())).live
        assert (await n.stub.ServerReady(pb.ServerReadyRequest())).ready
        metadata = await n.stub.ServerMetadata(pb.ServerMetadataRequest())
        assert (metadata.name, tuple(metadata.extensions)) == (SERVER_NAME, EXTENSIONS)
        assert metadata.version


@async_test
async def test_ready_is_one_ready_worker_and_no_drain(node: Any) -> None:
    async with node({}, {}, dead=(0, 1)) as n:
        assert not (await n.stub.ServerReady(pb.ServerReadyRequest())).ready
        await n.workers[1].start()
        n.fleet.look()
        assert (await n.stub.ServerReady(pb.ServerReadyRequest())).ready

        n.server.drain()

        assert not (await n.stub.ServerReady(pb.ServerReadyRequest())).ready
        assert (await n.stub.ServerLive(pb.ServerLiveRequest())).live


async def check(n: Any, name: str) -> int:
    status: int = (await n.health.Check(HealthCheckRequest(service=name))).status
    return status


@async_test
async def test_health_follows_the_table(node: Any, failure: Any) -> None:
    async with node({"echo": "READY", "slow": "LOADING"}, {}, dead=(1,)) as n:
        assert await check(n, "") == await check(n, "echo") == SERVING
        assert await check(n, "slow") == NOT_SERVING
        assert (await failure(check(n, "nope"))).code() is grpc.StatusCode.NOT_FOUND
        watch = n.health.Watch(HealthCheckRequest(service="echo"), timeout=10)
        assert (await watch.read()).status == SERVING

        del n.workers[0].models["echo"]
        n.fleet.look()

        assert (await watch.read()).status == SERVICE_UNKNOWN
        n.workers[0].models["echo"] = ("READY", "")
        n.fleet.look()
        assert (await watch.read()).status == SERVING
        n.fleet.lost("worker0", "gone")
        assert (await watch.read()).status == NOT_SERVING
        assert await check(n, "") == NOT_SERVING
        watch.cancel()


@async_test
async def test_a_bundle_on_a_disk_is_unknown_to_health(node: Any, failure: Any) -> None:
    async with node({"echo": "UNAVAILABLE"}) as n:
        assert await check(n, "echo") == NOT_SERVING
        n.workers[0].models["echo"] = ("UNAVAILABLE", "not loaded: it came after the server's start")
        n.fleet.look()
        assert (await failure(check(n, "echo"))).code() is grpc.StatusCode.NOT_FOUND


@async_test
async def test_a_drain_outlasts_new_tables_and_a_stop_ends_watches(node: Any, failure: Any) -> None:
    async with node({"echo": "READY"}) as n:
        watch = n.health.Watch(HealthCheckRequest(service=""), timeout=10)
        assert (await watch.read()).status == SERVING
        n.server.drain()
        assert (await watch.read()).status == NOT_SERVING
        n.fleet.look()
        assert await check(n, "") == NOT_SERVING
        assert await check(n, "echo") == SERVING

        await asyncio.wait_for(n.server.stop(), 0.9)

        assert (await failure(watch.read())).code() is grpc.StatusCode.UNAVAILABLE


@async_test
async def test_reflection_lists_every_service(node: Any) -> None:
    async with node({}) as n:
        stub = reflection_pb2_grpc.ServerReflectionStub(n.channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        assert {service.name for service in answer.list_services_response.service} == {
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "inference.GRPCInferenceService",
            "reactant.ControlService",
        }
        call.cancel()


@async_test
async def test_what_is_not_offered_or_not_answered_here(node: Any, failure: Any) -> None:
    async with node({}) as n:
        assert not (await n.stub.CudaSharedMemoryStatus(pb.CudaSharedMemoryStatusRequest())).regions
        trace = pb.TraceSettingRequest()
        trace.settings["trace_level"].value.append("TIMESTAMPS")
        stream = n.stub.ModelStreamInfer()
        for call in (
            n.stub.CudaSharedMemoryRegister(pb.CudaSharedMemoryRegisterRequest(name="r")),
            n.stub.CudaSharedMemoryUnregister(pb.CudaSharedMemoryUnregisterRequest(name="r")),
            n.stub.TraceSetting(trace),
            n.stub.ModelInfer(pb.ModelInferRequest(model_name="echo")),
            stream.read(),
        ):
            assert (await failure(call)).code() is grpc.StatusCode.UNIMPLEMENTED
        settings = (await n.stub.TraceSetting(pb.TraceSettingRequest())).settings
        assert list(settings["trace_level"].value) == ["OFF"]


@async_test
async def test_same_ipc_namespace_needs_no_worker(node: Any) -> None:
    async with node({}, dead=(0,)) as n:
        assert not (await n.stub.IsSameIPCNamespace(pb.IsSameIPCNamespaceRequest(name="no/such"))).same


@pytest.fixture
def level() -> Iterator[None]:
    before = logs.level()
    logs.set_level("info")
    yield
    logs.set_level(before)


@pytest.mark.usefixtures("level")
@async_test
async def test_log_settings_are_everybodys(node: Any, failure: Any) -> None:
    async with node({}, {}, {}, dead=(2,)) as n:
        request = pb.LogSettingsRequest()
        settings = (await n.stub.LogSettings(request)).settings
        assert settings["log_info"].bool_param
        assert not any(worker.calls for worker in n.workers)

        request.settings["log_info"].bool_param = False
        settings = (await n.stub.LogSettings(request)).settings

        assert not settings["log_info"].bool_param
        assert logs.level() == "warning"
        assert [worker.count("LogSettings") for worker in n.workers] == [1, 1, 0]
        n.workers[1].failing["LogSettings"] = ModelUnavailable("no")
        assert "worker1: no" in (await failure(n.stub.LogSettings(request))).details()
        request.settings["log_infos"].bool_param = False
        assert (await failure(n.stub.LogSettings(request))).code() is grpc.StatusCode.INVALID_ARGUMENT
        assert n.workers[0].count("LogSettings") == 2
