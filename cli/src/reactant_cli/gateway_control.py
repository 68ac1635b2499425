"""A gateway's GatewayControlService as the commands see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, final

from reactant_cli.connection import Server, connect
from reactant_cli.failure import CommandFailure
from reactant_core.errors import ModelNotFound, Unimplemented
from reactant_proto import gateway_pb2, gateway_pb2_grpc

T = TypeVar("T")


@final
class GatewayControl:
    """Calls to one gateway. Every method raises as those of `Server`, and for a server that is no gateway."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stub = gateway_pb2_grpc.GatewayControlServiceStub(server.channel)

    def status(self) -> gateway_pb2.GetSchedulingStatusResponse:
        """The scheduling, its workers and models."""
        return self._call(self._stub.GetSchedulingStatus, gateway_pb2.GetSchedulingStatusRequest())

    def set_policy(
        self, request: gateway_pb2.SetSchedulingPolicyRequest
    ) -> gateway_pb2.SetSchedulingPolicyResponse:
        """Sets what holds for all models."""
        return self._call(self._stub.SetSchedulingPolicy, request)

    def set_placement(
        self, request: gateway_pb2.SetModelPlacementRequest
    ) -> gateway_pb2.SetModelPlacementResponse:
        """Sets what holds for one model."""
        try:
            return self._call(self._stub.SetModelPlacement, request)
        except ModelNotFound:
            missing = self._server.no_such_model(request.model)
            raise CommandFailure(
                f"{missing} (--allow-unknown sets it for one that is still to come)"
            ) from None

    def repack(self, wait_seconds: float) -> gateway_pb2.RepackResponse:
        """Packs the models anew, and waits for that at most `wait_seconds`."""
        request = gateway_pb2.RepackRequest(wait_seconds=wait_seconds)
        return self._call(self._stub.Repack, request, wait_seconds)

    def _call(self, method: Callable[..., T], request: Any, wait_seconds: float = 0.0) -> T:
        try:
            return self._server.call(method, request, wait_seconds)
        except Unimplemented:
            raise CommandFailure(
                f"{self._server.url} has no GatewayControlService: it is a worker, or a gateway of an older "
                "version; a node with one worker has no gateway"
            ) from None


@contextmanager
def connect_gateway(url: str, timeout_seconds: float) -> Iterator[GatewayControl]:
    """A gateway that answered, at `url` (`host:port`). Raises as `connect`."""
    with connect(url, timeout_seconds) as server:
        yield GatewayControl(server)
