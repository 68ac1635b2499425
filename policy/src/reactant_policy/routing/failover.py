"""When a request that one worker failed may be tried on another."""

from __future__ import annotations

from enum import Enum, auto
from typing import final


@final
class Fault(Enum):
    """How an attempt ended without an answer of the model."""

    UNSENT = auto()
    """The connection died before the message was fully handed to the socket."""
    REFUSED_STREAM = auto()
    """The worker reset the stream with REFUSED_STREAM (RFC 9113, 8.7: no processing took place)."""
    GOAWAY = auto()
    """The stream's id is above the last one of the worker's GOAWAY (RFC 9113, 6.8)."""
    NOT_STARTED = auto()
    """The worker answered UNAVAILABLE or NOT_FOUND and said that it had not admitted the request."""
    LOST = auto()
    """The connection died, or the stream was reset, when the worker may have executed the request."""

    @property
    def started(self) -> bool:
        """The worker may have executed the request."""
        return self is Fault.LOST


def may_retry(
    fault: Fault, *, idempotent: bool, response_begun: bool, resendable: bool, untried: int
) -> bool:
    """Whether another worker may get the request; a model that is not idempotent never runs it twice.

    Args:
        fault: what ended the last attempt.
        idempotent: the model's property.
        response_begun: bytes of a response went to the client.
        resendable: the whole request is still at hand.
        untried: candidates that have not had it yet.
    """
    return not response_begun and resendable and untried > 0 and (idempotent or not fault.started)
