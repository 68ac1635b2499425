"""Asks a worker or a gateway which models it has."""

from __future__ import annotations

import grpc

from reactant_core.rpc import create_channel
from reactant_proto import inference_pb2, inference_pb2_grpc
from reactant_supervisor.announce import ModelEntry

_ASK_SECONDS = 5.0


async def list_models(address: str, *, timeout_seconds: float = _ASK_SECONDS) -> list[ModelEntry] | None:
    """The models of the server at `address`, by name; None when it does not say."""
    async with create_channel(address) as channel:
        stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            answer = await stub.RepositoryIndex(
                inference_pb2.RepositoryIndexRequest(), timeout=timeout_seconds, wait_for_ready=True
            )
        except grpc.aio.AioRpcError:
            return None
    entries = [ModelEntry(model.name, model.state) for model in answer.models]
    return sorted(entries, key=lambda entry: entry.name)
