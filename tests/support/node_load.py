"""Requests at a steady rate from several clients, and the outcome of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import grpc
import numpy as np
from tests.support.busy import unique
from tests.support.messages import arrays, echo, floats

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2_grpc

# As a client has it that sets nothing, but for connections that no other test shares.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended. Times are of `time.monotonic`.

    Attributes:
        id: its id, which hooks note.
        model: whom it was for.
        sent: when it was handed to the client.
        ended: when the client had its end.
        code: the status.
        details: its text; of an OK whose tensor is wrong, what is wrong.
        not_started: the trailer that says that no worker has begun it.
    """

    id: str
    model: str
    sent: float
    ended: float
    code: grpc.StatusCode
    details: str
    not_started: bool

    @property
    def ok(self) -> bool:
        """Answered, and rightly."""
        return self.code is grpc.StatusCode.OK and not self.details


@final
class Load:
    """Sends for as long as the block runs, whatever becomes of what was sent; use as a context manager.

    Leaving the block waits for every outcome.

    Args:
        address: of the server.
        models: whom the requests are for, in turn.
        rate: requests a second.
        clients: connections, which take turns.
        deadline: of each request, seconds.
    """

    def __init__(
        self,
        address: str,
        models: Sequence[str],
        *,
        rate: float = 200.0,
        clients: int = 4,
        deadline: float = 20.0,
    ) -> None:
        self._models = models
        self._rate = rate
        self._deadline = deadline
        self._channels = [grpc.insecure_channel(address, options=_OPTIONS) for _ in range(clients)]
        self._stubs: list[Any] = [inference_pb2_grpc.GRPCInferenceServiceStub(one) for one in self._channels]
        self._prefix = unique("load")
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send, name="load")
        self._sent = 0
        self._outcomes: list[Outcome] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Sends no more and waits for every outcome. May be repeated."""
        self._ending.set()
        self._thread.join()
        eventually_sync(lambda: len(self._outcomes) == self._sent, self._deadline + 5, what="every outcome")
        for channel in self._channels:
            channel.close()

    def go_on(self, seconds: float) -> None:
        """Returns when so many seconds of requests more have been sent."""
        until = self._sent + round(seconds * self._rate)
        eventually_sync(lambda: self._sent >= until, 10 * seconds + 30, what=f"{until} requests are sent")

    @property
    def sent(self) -> int:
        """Requests so far."""
        return self._sent

    @property
    def outcomes(self) -> list[Outcome]:
        """Those that have ended so far."""
        return list(self._outcomes)

    def failures(self, *models: str) -> list[Outcome]:
        """The requests of these models, of all by default, that were not answered rightly so far."""
        return [one for one in self.outcomes if not one.ok and one.model in (models or self._models)]

    def assert_no_failure(self, *models: str) -> None:
        """Every request of these models so far was answered rightly."""
        failures = self.failures(*models)
        assert not failures, f"{len(failures)} of {self._sent}: {summary(failures)}"

    def _send(self) -> None:
        begun = time.monotonic()
        while not self._ending.wait(max(0.0, begun + self._sent / self._rate - time.monotonic())):
            number = self._sent
            self._sent += 1
            self._one(number)

    def _one(self, number: int) -> None:
        model, name = self._models[number % len(self._models)], f"{self._prefix}-{number}"
        # Another divisor than the models': each client sends to each of them.
        stub = self._stubs[number // len(self._models) % len(self._stubs)]
        start = float(number % 1000)
        sent = time.monotonic()
        call = stub.ModelInfer.future(echo(model=model, id=name, start=start), timeout=self._deadline)

        def ended(call: Any) -> None:
            code, details = call.code(), call.details() or ""
            if code is grpc.StatusCode.OK:
                answer = arrays(call.result())["Y"]
                details = "" if np.array_equal(answer, floats(1, start=start)) else f"wrong: {answer}"
            trailers = dict(call.trailing_metadata() or ())
            not_started = "reactant-not-started" in trailers
            self._outcomes.append(Outcome(name, model, sent, time.monotonic(), code, details, not_started))

        call.add_done_callback(ended)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many of each status and text, and when, for failure messages."""
    kinds: dict[str, list[float]] = {}
    for one in outcomes:
        kinds.setdefault(f"{one.code.name}: {one.details[:200]}", []).append(one.sent)
    return "; ".join(
        f"{len(sent)} x {kind} (sent at {min(sent):.3f} to {max(sent):.3f})" for kind, sent in kinds.items()
    )
