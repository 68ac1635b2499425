"""The generated servicer serves Triton's stubs, written the way a service here writes it.

mypy checks this file too: an `async def` method with its own context type must be a valid override.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import final

import grpc
import pytest
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc import service_pb2_grpc as triton_grpc

from reactant_proto import inference_pb2, inference_pb2_grpc


@final
class Echo(inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers the name and id of a request; offers three RPCs only."""

    async def ModelInfer(  # noqa: N802 (name of the RPC)
        self,
        request: inference_pb2.ModelInferRequest,
        context: grpc.aio.ServicerContext[inference_pb2.ModelInferRequest, inference_pb2.ModelInferResponse],
    ) -> inference_pb2.ModelInferResponse:
        if not request.model_name:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no name")
        return inference_pb2.ModelInferResponse(model_name=request.model_name, id=request.id)

    async def ModelStreamInfer(  # noqa: N802 (name of the RPC)
        self,
        request_iterator: AsyncIterator[inference_pb2.ModelInferRequest],
        context: grpc.aio.ServicerContext[
            inference_pb2.ModelInferRequest, inference_pb2.ModelStreamInferResponse
        ],
    ) -> AsyncIterator[inference_pb2.ModelStreamInferResponse]:
        async for request in request_iterator:
            response = inference_pb2.ModelInferResponse(id=request.id)
            yield inference_pb2.ModelStreamInferResponse(infer_response=response)

    async def IsSameIPCNamespace(  # noqa: N802 (name of the RPC)
        self,
        request: inference_pb2.IsSameIPCNamespaceRequest,
        context: grpc.aio.ServicerContext[
            inference_pb2.IsSameIPCNamespaceRequest, inference_pb2.IsSameIPCNamespaceResponse
        ],
    ) -> inference_pb2.IsSameIPCNamespaceResponse:
        return inference_pb2.IsSameIPCNamespaceResponse(same=request.name == "same")


async def exchange() -> None:
    server = grpc.aio.server()
    inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Echo(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await call_with_tritons_stub(channel)
            await call_with_our_stub(channel)
    finally:
        await server.stop(None)


async def call_with_tritons_stub(channel: grpc.aio.Channel) -> None:
    stub = triton_grpc.GRPCInferenceServiceStub(channel)
    answer = await stub.ModelInfer(triton.ModelInferRequest(model_name="m", id="1"))
    assert answer == triton.ModelInferResponse(model_name="m", id="1")
    requests = [triton.ModelInferRequest(id=str(number)) for number in range(3)]
    assert [a.infer_response.id async for a in stub.ModelStreamInfer(iter(requests))] == ["0", "1", "2"]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.ModelInfer(triton.ModelInferRequest())
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def call_with_our_stub(channel: grpc.aio.Channel) -> None:
    stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
    for name in ("same", "other"):
        asked = await stub.IsSameIPCNamespace(inference_pb2.IsSameIPCNamespaceRequest(name=name))
        assert asked.same is (name == "same")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.ServerLive(inference_pb2.ServerLiveRequest())
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_async_servicer_serves_both_stubs() -> None:
    asyncio.run(exchange())
