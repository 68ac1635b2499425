"""ModelStreamInfer: many requests on one stream, one response each, in the order of the requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from reactant_core.errors import ServingError
from reactant_core.kserve.stream import MAX_OUTSTANDING, in_band_error, mark_final
from reactant_proto import inference_pb2 as pb


async def answer_stream(
    requests: AsyncIterator[pb.ModelInferRequest],
    answer: Callable[[pb.ModelInferRequest], Awaitable[pb.ModelInferResponse]],
) -> AsyncIterator[pb.ModelStreamInferResponse]:
    """Answers each message of `requests`; a failed one becomes an in-band error and the stream goes on.

    Ends after the last answer once the client has half-closed. When the consumer stops, what is in
    work is cancelled.
    """
    queue: asyncio.Queue[asyncio.Task[pb.ModelStreamInferResponse] | None] = asyncio.Queue()
    places = asyncio.Semaphore(MAX_OUTSTANDING)

    async def read() -> None:
        try:
            async for request in requests:
                await places.acquire()
                queue.put_nowait(asyncio.ensure_future(_in_band(request, answer)))
        finally:
            queue.put_nowait(None)

    reader = asyncio.ensure_future(read())
    working: deque[asyncio.Task[pb.ModelStreamInferResponse]] = deque()
    try:
        while (task := await queue.get()) is not None:
            working.append(task)
            response = await task
            working.popleft()
            places.release()
            yield response
        await reader
    finally:
        reader.cancel()
        while not queue.empty():
            if (left := queue.get_nowait()) is not None:
                working.append(left)
        for task in working:
            task.cancel()
        for ended in (reader, *working):
            with suppress(asyncio.CancelledError, Exception):
                await ended


async def _in_band(
    request: pb.ModelInferRequest,
    answer: Callable[[pb.ModelInferRequest], Awaitable[pb.ModelInferResponse]],
) -> pb.ModelStreamInferResponse:
    try:
        response = await answer(request)
    except ServingError as error:
        return in_band_error(request.model_name, request.id, error.message)
    mark_final(response)
    return pb.ModelStreamInferResponse(infer_response=response)
