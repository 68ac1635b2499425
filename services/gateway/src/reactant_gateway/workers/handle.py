"""One worker as the rest of the gateway holds it: stubs to call it and what is known of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, final

import grpc.aio
from grpc_health.v1 import health_pb2_grpc

from reactant_core.config.sections import GrpcConfig
from reactant_core.rpc import create_channel
from reactant_gateway.workers.endpoints import Endpoint
from reactant_policy.routing.table import WorkerView
from reactant_proto import control_pb2_grpc, inference_pb2_grpc


@final
class WorkerHandle:
    """A worker's stubs, for every RPC that is not plain forwarding, and the view of it in force.

    Attributes:
        endpoint: where it is.
        channel: the gRPC channel of the stubs; it connects when it is first used.
        inference: KServe V2.
        control: the worker's own RPCs; another KServe server answers UNIMPLEMENTED.
        health: grpc.health.v1.
        view: what was last seen of it; set by discovery.
        gpu: the device selector it runs with; empty on a CPU, and until it is known.
        reason: why it is not ready; empty while it is. Set by discovery.
    """

    __slots__ = ("channel", "control", "endpoint", "gpu", "health", "inference", "reason", "view")

    def __init__(self, endpoint: Endpoint, channel: grpc.aio.Channel) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.inference = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        self.control = control_pb2_grpc.ControlServiceStub(channel)
        self.health: Any = health_pb2_grpc.HealthStub(channel)
        self.view = WorkerView(endpoint.name, False, MappingProxyType({}))
        self.gpu = ""
        self.reason = "not yet probed"

    @property
    def name(self) -> str:
        """What metrics and logs call it."""
        return self.endpoint.name

    @property
    def ready(self) -> bool:
        """It is reachable and says that it is ready: it gets requests."""
        return self.view.available

    async def close(self) -> None:
        """Closes the channel and cancels its calls."""
        await self.channel.close()


def open_handle(endpoint: Endpoint, grpc_config: GrpcConfig) -> WorkerHandle:
    """A handle with a channel of its own, which belongs to the running event loop."""
    channel = create_channel(
        endpoint.address,
        max_recv_msg_bytes=grpc_config.max_recv_msg_bytes,
        max_send_msg_bytes=grpc_config.max_send_msg_bytes,
    )
    return WorkerHandle(endpoint, channel)
