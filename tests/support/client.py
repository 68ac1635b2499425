"""A client that can also send what no well-behaved client does, and says exactly what came back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import grpc
from grpc_health.v1 import health_pb2_grpc

from reactant_proto import inference_pb2 as pb
from reactant_proto import inference_pb2_grpc

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # A server that is just starting is found at once.
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 100),
)
PATIENCE_SECONDS = 20.0


@final
@dataclass(frozen=True, slots=True)
class Reply:
    """One outcome.

    Attributes:
        code: the status.
        details: its text; empty for OK.
        trailers: trailing metadata whose keys begin with `reactant-`.
        response: the message, None unless OK.
        seconds: from the send to the outcome.
    """

    code: grpc.StatusCode
    details: str
    trailers: Mapping[str, str]
    response: Any
    seconds: float

    def ok(self) -> Any:
        """The response of a call that must have succeeded."""
        assert self.code is grpc.StatusCode.OK, f"{self.code.name}: {self.details}"
        return self.response


@final
class Pending:
    """A call in flight."""

    def __init__(self, call: Any, started: float) -> None:
        self._call = call
        self._started = started
        self._ended: list[float] = []
        call.add_done_callback(lambda _: self._ended.append(time.monotonic()))

    def done(self) -> bool:
        """It has its outcome."""
        return bool(self._call.done())

    def cancel(self) -> None:
        """Cancels it from the client's side."""
        self._call.cancel()

    def reply(self, seconds: float = PATIENCE_SECONDS) -> Reply:
        """Waits for the outcome."""
        try:
            response = self._call.result(seconds)
        except grpc.FutureTimeoutError:
            raise AssertionError(f"no answer within {seconds} s") from None
        except (grpc.RpcError, grpc.FutureCancelledError):
            response = None
        ended = self._ended[0] if self._ended else time.monotonic()
        return _reply(self._call, response, ended - self._started)


@final
@dataclass(slots=True)
class Client:
    """Stubs over one channel; use as a context manager."""

    address: str
    channel: grpc.Channel = field(init=False)
    stub: Any = field(init=False)
    health: Any = field(init=False)

    def __post_init__(self) -> None:
        self.channel = grpc.insecure_channel(self.address, options=_OPTIONS)
        self.stub = inference_pb2_grpc.GRPCInferenceServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, calls in flight included."""
        self.channel.close()

    def call(self, rpc: str, request: Any, *, timeout: float = PATIENCE_SECONDS, **options: Any) -> Reply:
        """Makes one unary call of the inference service and waits for the outcome."""
        return self.start(rpc, request, timeout=timeout, **options).reply(timeout + 5)

    def start(
        self, rpc: str, request: Any, *, timeout: float | None = PATIENCE_SECONDS, **options: Any
    ) -> Pending:
        """Sends one unary call of the inference service."""
        started = time.monotonic()
        return Pending(getattr(self.stub, rpc).future(request, timeout=timeout, **options), started)

    def infer(
        self, request: pb.ModelInferRequest, *, timeout: float = PATIENCE_SECONDS, **options: Any
    ) -> Reply:
        """ModelInfer."""
        return self.call("ModelInfer", request, timeout=timeout, **options)

    def start_infer(
        self, request: pb.ModelInferRequest, *, timeout: float | None = PATIENCE_SECONDS, **options: Any
    ) -> Pending:
        """ModelInfer, not waited for."""
        return self.start("ModelInfer", request, timeout=timeout, **options)

    def ready(self, model: str) -> bool:
        """ModelReady."""
        return bool(self.call("ModelReady", pb.ModelReadyRequest(name=model)).ok().ready)

    def index(self, *, ready: bool = False) -> dict[str, tuple[str, str]]:
        """RepositoryIndex: state and reason by name."""
        answer = self.call("RepositoryIndex", pb.RepositoryIndexRequest(ready=ready)).ok()
        return {model.name: (model.state, model.reason) for model in answer.models}

    def load(self, model: str, **options: Any) -> Reply:
        """RepositoryModelLoad."""
        return self.call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name=model), **options)

    def unload(self, model: str, **options: Any) -> Reply:
        """RepositoryModelUnload."""
        return self.call(
            "RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=model), **options
        )


def replies(pending: Sequence[Pending], seconds: float = PATIENCE_SECONDS) -> list[Reply]:
    """All outcomes, in the order sent."""
    return [one.reply(seconds) for one in pending]


def _reply(call: Any, response: Any, seconds: float) -> Reply:
    trailers = {
        key: value.decode() if isinstance(value, bytes) else value
        for key, value in call.trailing_metadata() or ()
        if key.startswith("reactant-")
    }
    return Reply(call.code(), call.details() or "", trailers, response, seconds)
