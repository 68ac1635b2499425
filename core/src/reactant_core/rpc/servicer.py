"""What the methods of every servicer need: errors by the one table, and the time a call has left."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio

from reactant_core.errors import InternalError, ServingError, trailing_metadata
from reactant_core.logs import get_logger

_log = get_logger(__name__)
Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Any, Any]

_NO_DEADLINE_SECONDS = 1e9


def seconds_remaining(context: Context) -> float | None:
    """Until the call's deadline, None without one.

    The native transport says "without" with a number of centuries, grpc.aio with None.
    """
    remaining = context.time_remaining()
    return None if remaining is None or remaining > _NO_DEADLINE_SECONDS else remaining


def answers(
    method: Callable[[Any, Request, Context], Awaitable[Response]],
) -> Callable[[Any, Request, Context], Awaitable[Response]]:
    """Turns what a method raises into a status: `ServingError` by the table, the rest into INTERNAL."""

    @functools.wraps(method)
    async def answer(self: Any, request: Request, context: Context) -> Response:
        try:
            return await method(self, request, context)
        except ServingError as error:
            failure = error
        except Exception as error:
            _log.exception("RPC failed", rpc=method.__name__)
            failure = InternalError(f"{method.__name__} failed: {type(error).__name__}")
        await context.abort(failure.code, failure.message, trailing_metadata(failure))
        raise AssertionError("unreachable: abort raises")

    return answer
