"""`python -m benchmarks.no_op_worker PORT`: a worker whose only model costs nothing and answers the same.

It says what a worker says to a gateway's probes; ModelStatistics tells how many requests it has answered.
"""

from __future__ import annotations

import sys
from typing import Any, final

import grpc

from reactant_core.lifecycle import Stop, run
from reactant_core.rpc import create_server
from reactant_proto import control_pb2, control_pb2_grpc
from reactant_proto import inference_pb2 as pb

MODEL = "no_op"
_SERVICE = "inference.GRPCInferenceService"


@final
class _Worker:
    """Handlers of the RPCs that a gateway or a measurement calls."""

    def __init__(self) -> None:
        answer = pb.ModelInferResponse(model_name=MODEL, model_version="1")
        answer.outputs.add(name="scores", datatype="FP32", shape=[1, 10])
        answer.raw_output_contents.append(bytes(40))
        self._answer = answer.SerializeToString()
        self._answered = 0

    async def infer(self, _request: bytes, _context: Any) -> bytes:
        self._answered += 1
        return self._answer

    async def ready(self, _request: Any, _context: Any) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=True)

    async def index(self, _request: Any, _context: Any) -> pb.RepositoryIndexResponse:
        index = pb.RepositoryIndexResponse()
        index.models.add(name=MODEL, version="1", state="READY")
        return index

    async def statistics(self, _request: Any, _context: Any) -> pb.ModelStatisticsResponse:
        statistics = pb.ModelStatisticsResponse()
        statistics.model_stats.add(name=MODEL, version="1", inference_count=self._answered)
        return statistics

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        return {
            "ModelInfer": grpc.unary_unary_rpc_method_handler(self.infer),
            "ServerReady": _unary(self.ready, pb.ServerReadyRequest),
            "RepositoryIndex": _unary(self.index, pb.RepositoryIndexRequest),
            "ModelStatistics": _unary(self.statistics, pb.ModelStatisticsRequest),
        }


@final
class _Control(control_pb2_grpc.ControlServiceServicer):
    async def ModelControlStatus(  # noqa: N802 (the RPC's name)
        self, _request: control_pb2.ModelControlStatusRequest, _context: Any
    ) -> control_pb2.ModelControlStatusResponse:
        status = control_pb2.ModelControlStatusResponse(worker="no_op", control_mode="static")
        status.models.add(
            name=MODEL, version="1", state="READY", max_batch_size=128, batch_input="x", idempotent=True
        )
        return status


def _unary(method: Any, request: Any) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


async def _serve(stop: Stop) -> int:
    server = create_server(transport="native")
    # Registered, as generated stubs do it: generic handlers go a slower way through the native server.
    server.server.add_registered_method_handlers(_SERVICE, _Worker().handlers())
    control_pb2_grpc.add_ControlServiceServicer_to_server(_Control(), server.server)
    server.bind("127.0.0.1", int(sys.argv[1]))
    await server.start()
    await stop.requested.wait()
    await server.stop(1.0)
    return 0


if __name__ == "__main__":
    sys.exit(run(_serve))
