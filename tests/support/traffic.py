"""Requests at a steady rate, from a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import final

from tests.support.client import Client, Pending, Reply

from reactant_proto import inference_pb2 as pb


@final
class Traffic:
    """Sends `request()` so many times a second, whether or not answers have come; a context manager."""

    def __init__(self, client: Client, request: Callable[[], pb.ModelInferRequest], rate: float) -> None:
        self._client = client
        self._request = request
        self._rate = rate
        self._stop = threading.Event()
        self._pending: list[Pending] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def sent(self) -> int:
        """Requests so far."""
        return len(self._pending)

    def replies(self) -> list[Reply]:
        """The outcome of each, in the order in which they were sent; call it after the block."""
        return [one.reply() for one in self._pending]

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._stop.is_set():
            self._pending.append(self._client.start_infer(self._request()))
            # Late is late: a machine that was held up does not send all at once what it owes.
            due = begun + len(self._pending) / self._rate
            now = time.monotonic()
            if due < now:
                begun += now - due
            self._stop.wait(due - now)
