"""A worker's ControlService as the commands see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, final

from reactant_cli.connection import Server, connect
from reactant_cli.failure import CommandFailure
from reactant_core.errors import ModelNotFound, Unimplemented
from reactant_proto import control_pb2, control_pb2_grpc

T = TypeVar("T")


@final
class WorkerControl:
    """Calls to one worker. Every method raises as those of `Server`, and for a server that is no worker."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stub = control_pb2_grpc.ControlServiceStub(server.channel)

    def status(self) -> control_pb2.ModelControlStatusResponse:
        """The worker and its models."""
        return self._call(self._stub.ModelControlStatus, control_pb2.ModelControlStatusRequest())

    def set_weight(self, model: str, weight: float) -> None:
        """Sets the model's share of device time."""
        request = control_pb2.SetModelPolicyRequest(model=model, weight=weight)
        self._of_model(model, self._stub.SetModelPolicy, request)

    def set_residency(self, model: str, residency: str) -> None:
        """Sets the floor of the model's weights."""
        request = control_pb2.SetModelResidencyRequest(model=model, residency=residency)
        self._of_model(model, self._stub.SetModelResidency, request)

    def compact(self) -> control_pb2.CompactMemoryResponse:
        """Puts the weights on the device together."""
        return self._call(self._stub.CompactMemory, control_pb2.CompactMemoryRequest())

    def _of_model(self, model: str, method: Callable[..., Any], request: Any) -> None:
        try:
            self._call(method, request)
        except ModelNotFound:
            raise CommandFailure(self._server.no_such_model(model)) from None

    def _call(self, method: Callable[..., T], request: Any) -> T:
        try:
            return self._server.call(method, request)
        except Unimplemented:
            raise CommandFailure(
                f"{self._server.url} is no worker; behind a gateway give the worker's own address, "
                "such as --url localhost:8080"
            ) from None


@contextmanager
def connect_worker(url: str, timeout_seconds: float) -> Iterator[WorkerControl]:
    """A worker that answered, at `url` (`host:port`). Raises as `connect`."""
    with connect(url, timeout_seconds) as server:
        yield WorkerControl(server)
