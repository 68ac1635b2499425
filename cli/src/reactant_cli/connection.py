"""A server as the commands see it: few calls, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast, final

import grpc

from reactant_cli.failure import USAGE, CommandFailure
from reactant_cli.shown import shown
from reactant_cli.suggest import listed, near_names
from reactant_cli.values import TensorDecl
from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_core.errors import ModelNotFound, ServingError, clip, error_from_status
from reactant_core.rpc import create_sync_channel
from reactant_proto import inference_pb2, inference_pb2_grpc

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A line of the server's model index."""

    name: str
    state: str
    reason: str


@final
@dataclass(frozen=True, slots=True)
class ModelInterface:
    """What a model takes and returns."""

    inputs: tuple[TensorDecl, ...]
    outputs: tuple[TensorDecl, ...]


@final
class Server:
    """Calls to one server, each within `timeout_seconds`. Made by `connect`.

    Every method raises `ServingError` for the status a server answered with, and `CommandFailure` when
    no server answered.
    """

    def __init__(self, url: str, channel: grpc.Channel, timeout_seconds: float) -> None:
        self.url = url
        self.channel = channel
        self._stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._timeout = timeout_seconds

    def live(self) -> bool:
        """Whether the process answers; a failure means that none does."""
        try:
            return self.call(self._stub.ServerLive, inference_pb2.ServerLiveRequest()).live
        except ServingError as error:
            raise CommandFailure(_unreachable(self.url, error, self._timeout)) from None

    def ready(self) -> bool:
        """Whether requests are served."""
        return self.call(self._stub.ServerReady, inference_pb2.ServerReadyRequest()).ready

    def metadata(self) -> inference_pb2.ServerMetadataResponse:
        """Name, version, extensions."""
        return self.call(self._stub.ServerMetadata, inference_pb2.ServerMetadataRequest())

    def index(self) -> list[ModelEntry]:
        """Every model the server knows, by name."""
        answer = self.call(self._stub.RepositoryIndex, inference_pb2.RepositoryIndexRequest())
        return sorted(
            (ModelEntry(m.name, m.state or "UNKNOWN", m.reason) for m in answer.models), key=lambda m: m.name
        )

    def interface(self, model: str) -> ModelInterface:
        """Inputs and outputs of `model`; an unknown one fails with the near names there are."""
        try:
            answer = self.call(self._stub.ModelMetadata, inference_pb2.ModelMetadataRequest(name=model))
        except ModelNotFound:
            raise CommandFailure(self.no_such_model(model)) from None
        return ModelInterface(_declarations(answer.inputs), _declarations(answer.outputs))

    def infer(self, request: inference_pb2.ModelInferRequest) -> inference_pb2.ModelInferResponse:
        """One request, one response."""
        return self.call(self._stub.ModelInfer, request)

    def no_such_model(self, model: str) -> str:
        """A sentence on `model`, which the server says it does not have."""
        entries = self.index()
        for entry in entries:
            if entry.name == model:
                return _not_served(entry, self.url)
        names = [entry.name for entry in entries]
        missing = f"no model {shown(model)} at {self.url}"
        if near := near_names(model, names):
            return f"{missing}, did you mean {' or '.join(map(repr, near))}?"
        return f"{missing}; it has {listed(names)}" if names else f"{missing}: it serves no models"

    def call(self, method: Callable[..., T], request: Any, further_seconds: float = 0.0) -> T:
        """One call of a stub's method on `channel`, which may take `further_seconds` more than others."""
        try:
            return method(request, timeout=self._timeout + further_seconds)
        except grpc.RpcError as error:
            raise _domain_error(error) from None


@contextmanager
def connect(url: str, timeout_seconds: float) -> Iterator[Server]:
    """A server that answered, at `url` (`host:port`).

    Raises:
        CommandFailure: the address is malformed, or no inference server answers there.
    """
    if "://" in url or (":" not in url and not url.startswith("unix:")):
        raise CommandFailure(f"--url {shown(url)}: write it as host:port, such as localhost:8001", USAGE)
    with create_sync_channel(url) as channel:
        server = Server(url, channel, timeout_seconds)
        server.live()
        yield server


def _domain_error(error: grpc.RpcError) -> ServingError:
    # What a stub raises is both, which the stubs' types cannot say.
    call = cast("grpc.Call", error)
    return error_from_status(call.code(), call.details() or "", call.trailing_metadata() or ())


def _not_served(entry: ModelEntry, url: str) -> str:
    if entry.state == "READY":
        return f"model {shown(entry.name)} has just become ready at {url}; ask again"
    reason = clip(entry.reason) or "no reason given"
    return f"model {shown(entry.name)} is known at {url} but not served: {entry.state}, {reason}"


def _unreachable(url: str, error: ServingError, timeout_seconds: float) -> str:
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{url} did not answer within {timeout_seconds:g} s; --timeout gives it longer"
    if error.code is grpc.StatusCode.UNIMPLEMENTED:
        return f"what answers at {url} is not a KServe V2 inference server"
    if "before receiving SETTINGS" in error.message:
        return (
            f"{url} is listened on and does not answer: a gateway answers once its workers have compiled, "
            "`reactant status --watch` shows how far they are"
        )
    hint = "is the server running? `make run` starts one, --url host:port names another"
    if url.endswith(":8002"):
        hint = "8002 is the HTTP port, gRPC is 8001"
    return f"no server answers at {url} ({_cause(error.message)}); {hint}"


def _cause(details: str) -> str:
    for sign in ("Connection refused", "DNS resolution failed", "Name or service not known", "unreachable"):
        if sign.lower() in details.lower():
            return sign.lower()
    return details or "no reason given"


def _declarations(
    tensors: Sequence[inference_pb2.ModelMetadataResponse.TensorMetadata],
) -> tuple[TensorDecl, ...]:
    declared: list[TensorDecl] = []
    for tensor in tensors:
        dtype = BY_KSERVE.get(tensor.datatype)
        if dtype is None:
            raise CommandFailure(
                f"tensor {shown(tensor.name)} has datatype {shown(tensor.datatype)}, unknown here"
            )
        declared.append(TensorDecl(tensor.name, dtype, tuple(tensor.shape)))
    return tuple(declared)
