"""The gateway's control services, called by a stock client on the port that serves models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from services.gateway.tests.support.rig import Rig, gateway
from services.gateway.tests.support.steering import FakeSteering
from services.gateway.tests.support.worker import Worker

from reactant_core.rpc import create_channel
from reactant_core.testing import async_test, eventually
from reactant_gateway.local.regions import RegionBook
from reactant_gateway.local.server import LocalServer
from reactant_gateway.workers.handle import WorkerHandle
from reactant_proto import control_pb2, control_pb2_grpc, gateway_pb2, gateway_pb2_grpc


class Nobody:
    """A fleet without workers."""

    handles: tuple[WorkerHandle, ...] = ()

    def ready_handles(self) -> tuple[WorkerHandle, ...]:
        return ()

    async def refresh(self, *, force: bool = False) -> None:
        pass


@asynccontextmanager
async def served(folder: Path, steering: FakeSteering | None) -> AsyncIterator[tuple[Rig, grpc.aio.Channel]]:
    """A gateway with its own server, and a channel to its port."""
    book = RegionBook(lambda: (), lambda worker, reason: None, root=folder)
    async with (
        gateway(
            Worker(),
            local_server=lambda router: LocalServer(
                Nobody(), router, book, steering=steering, run_dir=folder
            ),
        ) as rig,
        create_channel(f"127.0.0.1:{rig.port}") as channel,
    ):
        yield rig, channel


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@async_test
async def test_scheduling_is_looked_at_and_retuned(tmp_path: Path) -> None:
    steering = FakeSteering()
    async with served(tmp_path, steering) as (rig, channel):
        stub = gateway_pb2_grpc.GatewayControlServiceStub(channel)

        told = await stub.GetSchedulingStatus(gateway_pb2.GetSchedulingStatusRequest())
        assert ([model.name for model in told.models], told.last_repack.trigger) == (
            ["hot", "cold"],
            "compute",
        )

        request = gateway_pb2.SetSchedulingPolicyRequest(
            policy=gateway_pb2.SchedulingPolicy(routing_fill_mode="spread")
        )
        request.update_mask.paths.append("routing_fill_mode")
        assert (await stub.SetSchedulingPolicy(request)).policy.routing_fill_mode == "spread"
        assert steering.told == [{"routing_fill_mode": "spread"}]
        assert (await stub.Repack(gateway_pb2.RepackRequest(wait_seconds=5))).done

        steering.hold.clear()
        waiting = asyncio.ensure_future(stub.Repack(gateway_pb2.RepackRequest(wait_seconds=5)))
        await eventually(lambda: rig.forwarder.in_flight == 1)
        waiting.cancel()
        await eventually(lambda: rig.forwarder.in_flight == 0)
        steering.hold.set()
        await eventually(lambda: steering.repacks == 2)


@async_test
async def test_only_what_is_served_is_let_through(tmp_path: Path) -> None:
    async with served(tmp_path, None) as (_, channel):
        stub = gateway_pb2_grpc.GatewayControlServiceStub(channel)
        error = await failure(stub.GetSchedulingStatus(gateway_pb2.GetSchedulingStatusRequest()))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "/reactant.GatewayControlService/GetSchedulingStatus" in (error.details() or "")

        control = control_pb2_grpc.ControlServiceStub(channel)
        error = await failure(control.CompactMemory(control_pb2.CompactMemoryRequest()))
        assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "no worker is ready")
