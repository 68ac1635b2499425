"""The one table between domain errors and gRPC statuses, used on both sides of the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

import grpc

NOT_STARTED_KEY = "reactant-not-started"
"""Trailer on every refusal made before admission: the request may be sent elsewhere without harm."""

MESSAGE_LIMIT_BYTES = 1024
"""Longest error text put on the wire: percent-encoded it still fits in a header block of 8 KiB."""

Trailers = tuple[tuple[str, str], ...]


def clip(text: str, limit: int = MESSAGE_LIMIT_BYTES) -> str:
    """Cuts `text` to at most `limit` bytes of UTF-8, never inside a character.

    Lone surrogates, which UTF-8 cannot carry, are replaced by `?`.
    """
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    return raw[: limit - 3].decode("utf-8", "ignore") + "…"


class ServingError(Exception):
    """A failure that has a place in the status table.

    Attributes:
        code: the gRPC status a client sees.
        message: the text a client sees, at most 1 KiB of UTF-8.
        not_started: the request was refused before admission.
        trailers: further trailing metadata.
    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, *, not_started: bool = False, trailers: Trailers = ()) -> None:
        self.message = clip(message)
        self.not_started = not_started
        self.trailers = trailers
        super().__init__(self.message)


@final
class InvalidArgument(ServingError):
    """The request itself is wrong; sending it again cannot help."""

    code = grpc.StatusCode.INVALID_ARGUMENT


@final
class ModelNotFound(ServingError):
    """No such model, version or named thing."""

    code = grpc.StatusCode.NOT_FOUND


@final
class ModelUnavailable(ServingError):
    """Loading, unloading or draining; retryable."""

    code = grpc.StatusCode.UNAVAILABLE


@final
class ResourceExhausted(ServingError):
    """A queue, cap, size limit or memory budget is full."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


@final
class DeadlineExceeded(ServingError):
    """The gRPC deadline or the `timeout` parameter passed."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


@final
class RequestCancelled(ServingError):
    """The client cancelled or its connection is gone."""

    code = grpc.StatusCode.CANCELLED


@final
class InternalError(ServingError):
    """A hook, program or the server failed on a valid request."""

    code = grpc.StatusCode.INTERNAL


@final
class Unimplemented(ServingError):
    """The RPC or option is not offered."""

    code = grpc.StatusCode.UNIMPLEMENTED


@final
class FailedPrecondition(ServingError):
    """The server is not in the mode or state the call needs."""

    code = grpc.StatusCode.FAILED_PRECONDITION


@final
class AlreadyExists(ServingError):
    """The name is taken."""

    code = grpc.StatusCode.ALREADY_EXISTS


_BY_CODE: dict[grpc.StatusCode, type[ServingError]] = {
    cls.code: cls
    for cls in (
        InvalidArgument,
        ModelNotFound,
        ModelUnavailable,
        ResourceExhausted,
        DeadlineExceeded,
        RequestCancelled,
        InternalError,
        Unimplemented,
        FailedPrecondition,
        AlreadyExists,
    )
}


def trailing_metadata(error: ServingError) -> Trailers:
    """Trailers that go out with `error`."""
    if error.not_started:
        return (*error.trailers, (NOT_STARTED_KEY, "1"))
    return error.trailers


def error_from_status(
    code: grpc.StatusCode, details: str, trailers: Iterable[tuple[str, str | bytes]] = ()
) -> ServingError:
    """The domain error a received status stands for; unknown codes give a plain `ServingError`."""
    kept: list[tuple[str, str]] = []
    not_started = False
    for key, value in trailers:
        if key == NOT_STARTED_KEY:
            not_started = value in ("1", b"1")
        elif isinstance(value, str):
            kept.append((key, value))
    kind = _BY_CODE.get(code, ServingError)
    return kind(details, not_started=not_started, trailers=tuple(kept))
