"""A gRPC client of a few lines that can misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ngh2 import Role, Setting
from services.gateway.tests.support.peer import Headers, Peer, Seen

from reactant_gateway.h2.grpc import framed
from reactant_proto import inference_pb2 as pb

INFER = b"/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = b"/inference.GRPCInferenceService/ModelStreamInfer"


def infer(model: str = "m", size: int = 0, request_id: str = "") -> bytes:
    """A ModelInferRequest with `size` bytes of contents."""
    request = pb.ModelInferRequest(model_name=model, id=request_id)
    tensor = request.inputs.add(name="x", datatype="UINT8", shape=[1, size])
    tensor.parameters["p"].int64_param = 1
    if size:
        request.raw_input_contents.append(bytes(size))
    return request.SerializeToString()


class Client(Peer):
    """One connection to the gateway."""

    def __init__(self, settings: dict[int, int] | None = None, **options: Any) -> None:
        defaults = {int(Setting.ENABLE_PUSH): 0}
        super().__init__(Role.CLIENT, {**defaults, **(settings or {})}, **options)

    def begin(self, path: bytes = INFER, extra: Headers = (), *, flush: bool = True) -> Seen:
        """The head of a call."""
        head = (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path),
            (b":authority", b"gateway"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        )
        seen = Seen(self.h2.send_request(head + extra))
        self.streams[seen.id] = seen
        if flush:
            self.flush()
        return seen

    def send(self, seen: Seen, data: bytes, *, end: bool = False, flush: bool = True) -> None:
        """A part of the body, not framed."""
        self.h2.send_data(seen.id, data, end_stream=end)
        if flush:
            self.flush()

    def call(
        self, message: bytes | None = None, path: bytes = INFER, extra: Headers = (), *, flush: bool = True
    ) -> Seen:
        """A call of one message."""
        seen = self.begin(path, extra, flush=False)
        self.send(seen, framed(infer() if message is None else message), end=True, flush=flush)
        return seen

    async def answer(self, message: bytes | None = None, path: bytes = INFER, extra: Headers = ()) -> Seen:
        """A call of one message and its end."""
        return await done(self.call(message, path, extra))


async def done(seen: Seen, seconds: float = 10.0) -> Seen:
    """The call when it is over."""
    async with asyncio.timeout(seconds):
        await seen.over.wait()
    return seen


async def until(predicate: Callable[[], Any]) -> None:
    """Goes round the event loop until `predicate` is true; for what is a few turns away."""
    async with asyncio.timeout(10):
        while not predicate():  # noqa: ASYNC110 (an event for it would be the thing under test)
            await asyncio.sleep(0)
