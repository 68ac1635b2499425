"""A gateway under cancellations and keepalive pings (cases Q3, W14).

REACTANT_TEST_FULL=1 makes as many calls as the cases ask for.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support import metrics
from tests.support.client import Client
from tests.support.gateway_fleet import gateway_of, stand_in_process
from tests.support.messages import echo
from tests.support.process import ServerProcess

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb
from reactant_proto import inference_pb2_grpc

pytestmark = pytest.mark.slow

FULL = os.environ.get("REACTANT_TEST_FULL") == "1"
UNARY, STREAMS, WARM_UP = (20_000, 2_000, 4_000) if FULL else (3_000, 400, 1_000)
GROWTH_BYTES = 20_000_000
AT_A_TIME = 100
IN_TIME = 5.0


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ServerProcess]:
    with ExitStack() as stack:
        workers = [stand_in_process(log=tmp_path / f"worker{at}.log") for at in range(2)]
        for worker in workers:
            stack.enter_context(worker)
        process = stack.enter_context(gateway_of(workers, log=tmp_path / "gateway.log"))
        process.wait_ready()
        yield process


def in_flight(gateway: ServerProcess) -> float:
    return metrics.parse(gateway.get("/metrics").body).value("gateway_inflight_requests")


async def cancelled_calls(stub: Any, count: int) -> None:
    """Calls that are cancelled before, while and after they are on their way."""
    request = echo(parameters={"seconds": 60.0})

    async def one(number: int) -> None:
        call = stub.ModelInfer(request)
        await asyncio.sleep((number % 4) * 0.003)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    for start in range(0, count, AT_A_TIME):
        await asyncio.gather(*(one(number) for number in range(start, min(count, start + AT_A_TIME))))


async def reset_streams(stub: Any, count: int) -> None:
    """Streams that are cancelled when the first answer has come."""

    async def one() -> None:
        call = stub.ModelStreamInfer()
        for _ in range(3):
            await call.write(echo())
        answer = await call.read()
        assert answer.error_message == ""
        call.cancel()

    for _ in range(0, count, AT_A_TIME):
        await asyncio.gather(*(one() for _ in range(AT_A_TIME)))


def test_q3_cancelled_calls_leave_nothing_behind(gateway: ServerProcess) -> None:
    async def run(unary: int, streams: int) -> None:
        async with grpc.aio.insecure_channel(gateway.address) as channel:
            stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
            await cancelled_calls(stub, unary)
            await reset_streams(stub, streams)

    asyncio.run(run(WARM_UP, WARM_UP // 10))
    before = gateway.resident_bytes()
    asyncio.run(run(UNARY, STREAMS))

    eventually_sync(lambda: in_flight(gateway) == 0, 5)
    grown = gateway.resident_bytes() - before
    assert grown < GROWTH_BYTES, f"{grown / 1e6:.1f} MB"
    with Client(gateway.address) as client:
        client.infer(echo()).ok()
    begin = time.monotonic()
    assert gateway.stop(IN_TIME) == 0
    assert time.monotonic() - begin < IN_TIME
    assert not [event for event in gateway.events() if event.get("level") in ("error", "critical")]


def test_q3_a_stream_of_an_unknown_method_is_refused_at_once(gateway: ServerProcess) -> None:
    with Client(gateway.address) as client:
        for method in ("/inference.GRPCInferenceService/Nope", "/no.Service/Nope"):
            stream: Any = client.channel.stream_stream(method)
            call = stream(iter([b""]), timeout=10, wait_for_ready=True)
            begin = time.monotonic()
            with pytest.raises(grpc.RpcError) as raised:
                next(call)
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert time.monotonic() - begin < 1


def test_w14_pings_without_calls_and_during_a_long_one(gateway: ServerProcess) -> None:
    """A ping each 100 ms, where the case has one each 10 s, for as many pings as there in a minute and a half
    and more; a server with grpcio's defaults gives up after the second."""
    states: list[grpc.ChannelConnectivity] = []
    options = (
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    )
    with grpc.insecure_channel(gateway.address, options=options) as channel:
        stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        channel.subscribe(states.append)
        stub.ModelInfer(echo(), timeout=5, wait_for_ready=True)
        eventually_sync(lambda: grpc.ChannelConnectivity.READY in states)
        states.clear()

        time.sleep(2.0)  # the time is what is tested
        stub.ModelInfer(echo(parameters={"seconds": 2.0}), timeout=10)

        assert stub.ServerReady(pb.ServerReadyRequest(), timeout=5).ready
        assert not states, "the connection was closed"
