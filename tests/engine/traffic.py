"""Requests without end from clients that do not wait for one another, and the outcome of each."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import grpc
import numpy as np
from tests.support.client import Client
from tests.support.messages import floats, infer, tensor

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

Make = Callable[[int], pb.ModelInferRequest]

_GIVE_UP = 100
"""So many answers in a row that are no OK end a closed loop: who refuses all is not asked for ever."""


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended. Times are of `time.monotonic`.

    Attributes:
        sent: when it was handed to the client.
        ended: when the client had its end.
        code: the status.
        details: its text.
        right: the first output is the first input, byte for byte; False without an answer.
    """

    sent: float
    ended: float
    code: grpc.StatusCode
    details: str
    right: bool

    @property
    def seconds(self) -> float:
        """From the send to the end."""
        return self.ended - self.sent


class Traffic:
    """Base of what sends for as long as its block runs; leaving the block waits for every outcome.

    Args:
        address: of the server; each traffic has a connection of its own.
        make: the request of a number.
        deadline: gRPC deadline of each, seconds; None without.
    """

    def __init__(self, address: str, make: Make, *, deadline: float | None = None) -> None:
        self._client = Client(address)
        self._make = make
        self._deadline = deadline
        self._lock = threading.Lock()
        self._outcomes: list[Outcome] = []
        self._sent = 0
        self._ending = threading.Event()

    def __enter__(self) -> Any:
        self._client.call("ServerLive", pb.ServerLiveRequest()).ok()  # connected
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._end()
        eventually_sync(lambda: len(self._outcomes) == self._sent, 60, what="every outcome")
        self._client.close()

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        """Waits until nothing is sent any more."""

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Those of the requests that have ended so far."""
        with self._lock:
            return list(self._outcomes)

    def between(self, begin: float, end: float) -> list[Outcome]:
        """Outcomes of the requests sent in this time."""
        return [one for one in self.outcomes if begin <= one.sent < end]

    def assert_all_right(self) -> None:
        """Every request so far was answered, and with its own values."""
        outcomes = self.outcomes
        assert outcomes
        assert all(one.right for one in outcomes), summary(outcomes)

    def _send(self) -> None:
        with self._lock:
            number = self._sent
            self._sent += 1
        request = self._make(number)
        sent = time.monotonic()
        call = self._client.stub.ModelInfer.future(request, timeout=self._deadline)
        call.add_done_callback(lambda call: self._ended(call, request, sent))

    def _ended(self, call: Any, request: pb.ModelInferRequest, sent: float) -> None:
        ended, code = time.monotonic(), call.code()
        right = False
        if code is grpc.StatusCode.OK:
            right = call.result().raw_output_contents[0] == request.raw_input_contents[0]
        with self._lock:
            self._outcomes.append(Outcome(sent, ended, code, call.details() or "", right))
        self._after(code)

    def _after(self, code: grpc.StatusCode) -> None:
        """Called when one has ended."""


@final
class Closed(Traffic):
    """Keeps `at_once` requests outstanding: a model under it always has something queued."""

    def __init__(self, address: str, make: Make, at_once: int, *, deadline: float | None = None) -> None:
        super().__init__(address, make, deadline=deadline)
        self._at_once = at_once
        self._refused = 0

    def _begin(self) -> None:
        for _ in range(self._at_once):
            self._send()

    def _after(self, code: grpc.StatusCode) -> None:
        self._refused = 0 if code is grpc.StatusCode.OK else self._refused + 1
        if not self._ending.is_set() and self._refused < _GIVE_UP:
            self._send()


@final
class Arrivals(Traffic):
    """Sends `rate` requests a second, whatever becomes of them."""

    def __init__(self, address: str, make: Make, rate: float, *, deadline: float | None = None) -> None:
        super().__init__(address, make, deadline=deadline)
        self._rate = rate
        self._thread = threading.Thread(target=self._run, name="arrivals")

    def _begin(self) -> None:
        self._thread.start()

    def _end(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._ending.wait(max(0.0, begun + self._sent / self._rate - time.monotonic())):
            self._send()


def staged(
    steps: Sequence[int], number: int = 0, *, name: str = "", seconds: float = 0.0
) -> pb.ModelInferRequest:
    """For the meta of that name: an execution of `slow` for each of `steps`, after a pause; X comes back."""
    x = tensor("X", floats(1, start=float(number % 1000)))
    parameters = {"seconds": seconds}
    return infer("staged", x, tensor("steps", np.array(steps, np.int32)), id=name, parameters=parameters)


def codes(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How many ended with each status."""
    return Counter(one.code.name for one in outcomes)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many of each status and text, for failure messages."""
    wrong = "not its own values"
    kinds = Counter(
        "OK" if one.right else f"{one.code.name}: {one.details[:200] or wrong}" for one in outcomes
    )
    return "; ".join(f"{count} x {kind}" for kind, count in kinds.most_common())


def percentile(values: Sequence[float], part: float) -> float:
    """The value that `part` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
