"""A worker of a few lines, as a process: `python -m tests.support.gateway_stand_in PORT [--model NAME]…`.

Says that it is ready and what it serves, and answers ModelInfer at once, or after `seconds` (a parameter of
the request). SIGUSR1 makes it answer nothing any more while its connections stay, the next one makes it well
again. What a test of the gateway wants of a worker when no model matters.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Any, final

import grpc

from reactant_core.rpc import create_server
from reactant_proto import control_pb2
from reactant_proto import inference_pb2 as pb

SERVICE = "inference.GRPCInferenceService"


@final
class StandIn:
    """The servicer.

    Args:
        name: what it says of itself in every answer, as `model_version`.
        models: served, each with the batch axis 0 of `X`.
        idempotent: what it says of them.
    """

    def __init__(self, name: str, models: list[str], *, idempotent: bool) -> None:
        self._name = name
        self._models = models
        self._idempotent = idempotent
        self._well = asyncio.Event()
        self._well.set()
        self._echo = pb.ModelInferResponse(model_name="echo", model_version=name).SerializeToString()

    def toggle(self) -> None:
        """Stops to answer, or answers again, what has come meanwhile included."""
        if self._well.is_set():
            self._well.clear()
        else:
            self._well.set()

    def handlers(self) -> list[Any]:
        """For `add_generic_rpc_handlers`."""
        inference = {
            "ModelInfer": self._unary(self._infer),
            "ServerReady": self._unary(self._ready),
            "RepositoryIndex": self._unary(self._index),
        }
        control = {"ModelControlStatus": self._unary(self._control)}
        return [
            grpc.method_handlers_generic_handler(SERVICE, inference),
            grpc.method_handlers_generic_handler("reactant.ControlService", control),
        ]

    def _unary(self, method: Any) -> Any:
        async def answer(body: bytes, context: Any) -> bytes:
            await self._well.wait()
            answered: bytes = await method(body, context)
            return answered

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _infer(self, body: bytes, context: Any) -> bytes:
        if b"seconds" not in body:
            return self._echo
        try:
            request = pb.ModelInferRequest.FromString(body)
        except Exception:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no ModelInferRequest")
        await asyncio.sleep(request.parameters["seconds"].double_param)
        answer = pb.ModelInferResponse(model_name=request.model_name, model_version=self._name, id=request.id)
        return answer.SerializeToString()

    async def _ready(self, _: bytes, __: Any) -> bytes:
        return pb.ServerReadyResponse(ready=True).SerializeToString()

    async def _index(self, _: bytes, __: Any) -> bytes:
        entry = pb.RepositoryIndexResponse.ModelIndex
        entries = [entry(name=name, version="1", state="READY") for name in self._models]
        return pb.RepositoryIndexResponse(models=entries).SerializeToString()

    async def _control(self, _: bytes, __: Any) -> bytes:
        models = [
            control_pb2.ModelControl(
                name=name,
                version="1",
                state="READY",
                batch_input="X",
                batch_axis=0,
                max_batch_size=64,
                idempotent=self._idempotent,
            )
            for name in self._models
        ]
        return control_pb2.ModelControlStatusResponse(worker=self._name, models=models).SerializeToString()


async def serve(servicer: StandIn, port: int) -> None:
    """Until SIGTERM or SIGINT."""
    server = create_server()
    server.server.add_generic_rpc_handlers(servicer.handlers())
    server.bind("127.0.0.1", port)
    await server.start()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGUSR1, servicer.toggle)
    await ended.wait()
    await server.stop(0)


def main() -> None:
    """Serves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--name", default="stand-in")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--idempotent", action="store_true")
    given = parser.parse_args()
    servicer = StandIn(given.name, given.model or ["echo"], idempotent=given.idempotent)
    asyncio.run(serve(servicer, given.port))


if __name__ == "__main__":
    main()
