"""A stock client that keeps inferring while others misbehave."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, final

from tests.support.client import Client
from tests.support.messages import echo

DEADLINE_SECONDS = 5.0


@final
class Neighbour:
    """One call after the other on a connection of its own, from a thread; use as a context manager.

    Attributes:
        outcomes: calls by status and details.
        slowest: seconds of the slowest call.
    """

    def __init__(self, address: str) -> None:
        self._client = Client(address)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neighbour", daemon=True)
        self.outcomes: Counter[str] = Counter()
        self.slowest = 0.0

    def __enter__(self) -> Neighbour:
        self._client.infer(echo(), wait_for_ready=True).ok()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(2 * DEADLINE_SECONDS)
        self._client.close()

    @property
    def failures(self) -> dict[str, int]:
        """What was not OK, by status and details."""
        return {outcome: count for outcome, count in self.outcomes.items() if outcome != "OK"}

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            reply = self._client.infer(echo(id="neighbour"), timeout=DEADLINE_SECONDS)
            self.outcomes[f"{reply.code.name} {reply.details}".strip()] += 1
            self.slowest = max(self.slowest, reply.seconds)
