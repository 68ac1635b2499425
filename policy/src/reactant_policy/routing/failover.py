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
    fault: Fault,
    *,
    idempotent: bool,
    response_begun: bool,
    resendable: bool,
    untried: int,
    lost_before: bool = False,
) -> bool:
    """Whether another worker may get the request; a model that is not idempotent never runs it twice.

    Nor does an idempotent one when two workers died with it: a request that kills must not go round.

    Args:
        fault: what ended the last attempt.
        idempotent: the model's property.
        response_begun: bytes of a response went to the client.
        resendable: the whole request is still at hand.
        untried: candidates that have not had it yet.
        lost_before: an earlier attempt ended in a way that may have executed it.
    """
    if response_begun or not resendable or untried <= 0:
        return False
    return not fault.started or (idempotent and not lost_before)
