# ruff: noqa: N802 (method names are the RPCs' and http.server's)
"""A small KServe V2 server inside the test process, so that commands talk to something real."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest

from reactant_proto import (
    control_pb2,
    control_pb2_grpc,
    gateway_pb2,
    gateway_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
)

MODELS: dict[str, list[tuple[str, str, list[int]]]] = {
    "echo": [("X", "FP32", [-1, 4])],
    "echo_bytes": [("text", "BYTES", [-1])],
    "echo_bf16": [("X", "BF16", [-1, 2])],
    "pair": [("ids", "INT32", [-1, 2]), ("mask", "BOOL", [-1, 2])],
}


@dataclass
class FakeServer(inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Echoes every input as an output of the same name."""

    url: str = ""
    is_ready: bool = True
    typed: bool = False
    requests: list[inference_pb2.ModelInferRequest] = field(default_factory=list)
    index: dict[str, tuple[str, str]] = field(
        default_factory=lambda: dict.fromkeys(MODELS, ("READY", "")) | {"bad": ("UNAVAILABLE", "no weights")}
    )
    fail_with: tuple[grpc.StatusCode, str] | None = None

    def ServerLive(self, request: Any, context: Any) -> inference_pb2.ServerLiveResponse:
        return inference_pb2.ServerLiveResponse(live=True)

    def ServerReady(self, request: Any, context: Any) -> inference_pb2.ServerReadyResponse:
        return inference_pb2.ServerReadyResponse(ready=self.is_ready)

    def ServerMetadata(self, request: Any, context: Any) -> inference_pb2.ServerMetadataResponse:
        return inference_pb2.ServerMetadataResponse(
            name="fake", version="1.2", extensions=["model_repository"]
        )

    def RepositoryIndex(self, request: Any, context: Any) -> inference_pb2.RepositoryIndexResponse:
        answer = inference_pb2.RepositoryIndexResponse()
        for name, (state, reason) in self.index.items():
            answer.models.add(name=name, version="1", state=state, reason=reason)
        return answer

    def ModelMetadata(self, request: Any, context: Any) -> inference_pb2.ModelMetadataResponse:
        if request.name not in MODELS:
            context.abort(grpc.StatusCode.NOT_FOUND, f"model {request.name!r} is unknown")
        answer = inference_pb2.ModelMetadataResponse(name=request.name, versions=["1"], platform="fake")
        for name, datatype, shape in MODELS[request.name]:
            answer.inputs.add(name=name, datatype=datatype, shape=shape)
            answer.outputs.add(name=name, datatype=datatype, shape=shape)
        return answer

    def ModelInfer(self, request: Any, context: Any) -> inference_pb2.ModelInferResponse:
        self.requests.append(request)
        if self.fail_with is not None:
            context.abort(*self.fail_with)
        answer = inference_pb2.ModelInferResponse(model_name=request.model_name, model_version="1")
        for tensor in request.inputs:
            answer.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if self.typed:
            answer.outputs[0].contents.fp32_contents.extend([1.0, 2.0, 3.0, 4.0])
        else:
            answer.raw_output_contents.extend(request.raw_input_contents)
        return answer


@dataclass
class FakeControl(control_pb2_grpc.ControlServiceServicer):
    """Keeps what it is told; a model it does not have is NOT_FOUND."""

    status: control_pb2.ModelControlStatusResponse = field(
        default_factory=control_pb2.ModelControlStatusResponse
    )
    compaction: control_pb2.CompactMemoryResponse = field(default_factory=control_pb2.CompactMemoryResponse)
    told: list[Any] = field(default_factory=list)
    fail_with: tuple[grpc.StatusCode, str] | None = None

    def ModelControlStatus(self, request: Any, context: Any) -> Any:
        return self.status

    def SetModelPolicy(self, request: Any, context: Any) -> Any:
        self._tell(request, context)
        return control_pb2.SetModelPolicyResponse()

    def SetModelResidency(self, request: Any, context: Any) -> Any:
        self._tell(request, context)
        return control_pb2.SetModelResidencyResponse()

    def CompactMemory(self, request: Any, context: Any) -> Any:
        return self.compaction

    def _tell(self, request: Any, context: Any) -> None:
        if self.fail_with is not None:
            context.abort(*self.fail_with)
        if request.model not in MODELS:
            context.abort(grpc.StatusCode.NOT_FOUND, f"model '{request.model}' is not found")
        self.told.append(request)


@dataclass
class FakeScheduling(gateway_pb2_grpc.GatewayControlServiceServicer):
    """Keeps what it is told; a model it does not have is NOT_FOUND."""

    status: gateway_pb2.GetSchedulingStatusResponse = field(
        default_factory=gateway_pb2.GetSchedulingStatusResponse
    )
    placement: gateway_pb2.ModelPlacement = field(default_factory=gateway_pb2.ModelPlacement)
    repack: gateway_pb2.RepackResponse = field(default_factory=gateway_pb2.RepackResponse)
    mode: str = "lpt_packing"
    told: list[Any] = field(default_factory=list)
    fail_with: tuple[grpc.StatusCode, str] | None = None

    def GetSchedulingStatus(self, request: Any, context: Any) -> Any:
        return self.status

    def SetSchedulingPolicy(self, request: Any, context: Any) -> Any:
        if self.fail_with is not None:
            context.abort(*self.fail_with)
        self.told.append(request)
        answer = gateway_pb2.SetSchedulingPolicyResponse(policy=request.policy)
        answer.policy.mode = self.mode
        return answer

    def SetModelPlacement(self, request: Any, context: Any) -> Any:
        if request.model not in MODELS:
            context.abort(grpc.StatusCode.NOT_FOUND, f"model '{request.model}' is not found")
        self.told.append(request)
        return gateway_pb2.SetModelPlacementResponse(placement=self.placement, mode=self.mode)

    def Repack(self, request: Any, context: Any) -> Any:
        self.told.append(request)
        return self.repack


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A fake server on a free port; `server.url` is its address. It has no service of ours."""
    yield from _serve(FakeServer(), lambda _: None)


@pytest.fixture
def control() -> FakeControl:
    """What the ControlService of `worker` says and is told."""
    return FakeControl()


@pytest.fixture
def worker(control: FakeControl) -> Iterator[FakeServer]:
    """A fake server that has a ControlService."""
    add = control_pb2_grpc.add_ControlServiceServicer_to_server
    yield from _serve(FakeServer(), lambda server: add(control, server))


@pytest.fixture
def scheduling() -> FakeScheduling:
    """What the GatewayControlService of `gateway` says and is told."""
    return FakeScheduling()


@pytest.fixture
def gateway(scheduling: FakeScheduling) -> Iterator[FakeServer]:
    """A fake server that has a GatewayControlService."""
    add = gateway_pb2_grpc.add_GatewayControlServiceServicer_to_server
    yield from _serve(FakeServer(), lambda server: add(scheduling, server))


def _serve(fake: FakeServer, add: Callable[[grpc.Server], None]) -> Iterator[FakeServer]:
    with ThreadPoolExecutor(4) as pool:
        grpc_server = grpc.server(pool)
        inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, grpc_server)
        add(grpc_server)
        fake.url = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
        grpc_server.start()
        yield fake
        grpc_server.stop(None).wait()


@dataclass
class FakeReadyz:
    """Answers `/readyz` with the entries of `script` one after the other, the last one for ever."""

    script: list[dict[str, Any]]
    url: str = ""
    asked: int = 0

    def next_answer(self) -> dict[str, Any]:
        answer = self.script[min(self.asked, len(self.script) - 1)]
        self.asked += 1
        return answer


@pytest.fixture
def readyz() -> Iterator[FakeReadyz]:
    """An HTTP server whose `/readyz` follows a script."""
    fake = FakeReadyz([{"ready": True, "state": "serving"}])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = fake.next_answer()
            body = json.dumps(answer).encode()
            self.send_response(200 if answer["ready"] else 503)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        fake.url = f"127.0.0.1:{http_server.server_address[1]}"
        yield fake
        http_server.shutdown()
        thread.join()
