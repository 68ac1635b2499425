"""Unary calls answered without a coroutine, where the transport can hand them out in bursts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from reactant_core.errors import ServingError, trailing_metadata

Metadata = Sequence[tuple[str, str | bytes]]


@final
class DirectCall:
    """One call. Whoever takes it answers it, once and later, on the event loop.

    Attributes:
        payload: the request message as it came.
        metadata: what the client sent with it.
        seconds_remaining: to its deadline, when it came; None without one.
    """

    __slots__ = ("_call_id", "_front", "_left", "_open", "metadata", "payload", "seconds_remaining")

    def __init__(
        self,
        front: Any,
        taken: dict[int, DirectCall],
        call_id: int,
        payload: bytes,
        details: tuple[Metadata, str, float | None],
    ) -> None:
        self._front = front
        self._open = taken
        self._call_id = call_id
        self.payload = payload
        self.metadata, _, self.seconds_remaining = details

    def take(self, left: Callable[[], None]) -> None:
        """The servicer does not get it. `left` is called when there is nobody to answer any more."""
        self._left = left
        self._open[self._call_id] = self

    def respond(self, payload: bytes) -> None:
        """Ends it with an encoded message."""
        del self._open[self._call_id]
        self._front.respond(self._call_id, payload)

    def fail(self, error: ServingError) -> None:
        """Ends it with the status that stands for `error`."""
        del self._open[self._call_id]
        self._front.fail(
            self._call_id,
            error.code.value[0],
            error.message,
            trailing_metadata=list(trailing_metadata(error)),
        )

    def abandon(self) -> None:
        """The transport's word that the client left, or that its deadline passed."""
        del self._open[self._call_id]
        self._left()


Taker = Callable[[Sequence[DirectCall]], None]
"""Gets calls that came together. It takes those that it will answer, none of them before it returns; the
others go to the servicer."""
