"""Requests in bursts, each model at a rate of its own that a test may change while they are sent."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import grpc
from tests.packing.settings import BURST, PERIODS
from tests.support.client import Client
from tests.support.messages import echo
from tests.support.volley import Volley

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

DEADLINE_SECONDS = 20.0


@final
@dataclass(frozen=True, slots=True)
class Burst:
    """What a model is sent, again and again.

    Attributes:
        every: seconds from one burst to the next.
        requests: of a burst, sent one right after the other.
        rows: of a request.
    """

    every: float
    requests: int
    rows: int = 1


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended. Times are of `time.monotonic`."""

    model: str
    sent: float
    ended: float
    code: grpc.StatusCode
    details: str
    right: bool

    @property
    def seconds(self) -> float:
        """From the send to the end."""
        return self.ended - self.sent


def bursts(periods: Mapping[str, float] = PERIODS) -> dict[str, Burst]:
    """A burst of single rows of each model every so many seconds."""
    return {model: Burst(period, BURST) for model, period in periods.items()}


@final
class Traffic:
    """Sends for as long as its block runs; leaving the block waits for every outcome.

    Args:
        address: of the server.
        plan: what each model is sent.
    """

    def __init__(self, address: str, plan: Mapping[str, Burst]) -> None:
        self._volley = Volley(address, DEADLINE_SECONDS)
        self._wanted = dict(plan)
        self._changed = threading.Event()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._outcomes: list[Outcome] = []
        self._sent: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def __enter__(self) -> Traffic:
        self._volley.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._changed.set()
        self._thread.join()
        eventually_sync(lambda: len(self._outcomes) == self._sent.total(), 60, what="every outcome")
        self._volley.__exit__()

    def change(self, plan: Mapping[str, Burst]) -> None:
        """From now on each model is sent this."""
        self._wanted = dict(plan)
        self._changed.set()

    def go_on(self, seconds: float) -> None:
        """Returns when about so many seconds of requests more have been sent."""
        rate = sum(burst.requests / burst.every for burst in self._wanted.values())
        until = self._sent.total() + rate * seconds
        eventually_sync(lambda: self._sent.total() >= until, 10 * seconds + 30, what="requests are sent")

    @property
    def sent(self) -> Counter[str]:
        """Requests of each model so far."""
        return self._sent.copy()

    def outcomes(self, *models: str, since: float = 0.0) -> list[Outcome]:
        """Those of the requests of these models, of all by default, that have ended so far."""
        with self._lock:
            found = list(self._outcomes)
        return [one for one in found if one.sent >= since and (not models or one.model in models)]

    def all_ended(self, model: str) -> bool:
        """Nothing of this model is outstanding."""
        return len(self.outcomes(model)) == self._sent[model]

    def assert_all_right(self) -> None:
        """Every request so far was answered, and with its own values."""
        outcomes = self.outcomes()
        assert outcomes
        assert all(one.right for one in outcomes), summary(outcomes)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._changed.clear()
            self._follow(self._wanted)

    def _follow(self, plan: Mapping[str, Burst]) -> None:
        """Sends by `plan` until there is another one. Models begin at different times of their periods."""
        begun = time.monotonic()
        due = [
            (begun + place / len(plan) * burst.every, model)
            for place, (model, burst) in enumerate(plan.items())
        ]
        heapq.heapify(due)
        while due:
            at, model = due[0]
            if self._changed.wait(max(0.0, at - time.monotonic())):
                return
            burst = plan[model]
            # Late is late: a machine that was held up does not send all at once what it owes.
            heapq.heapreplace(due, (max(at, time.monotonic() - burst.every) + burst.every, model))
            self._send(model, burst)
        self._changed.wait()

    def _send(self, model: str, burst: Burst) -> None:
        """All of a burst in one write."""
        first = self._sent[model]
        requests = [
            echo(burst.rows, model=model, start=float((first + place) % 1000))
            for place in range(burst.requests)
        ]
        self._sent[model] += len(requests)
        sent = time.monotonic()
        self._volley.send(
            [
                (
                    request.SerializeToString(),
                    partial(self._ended, model, request.raw_input_contents[0], sent),
                )
                for request in requests
            ]
        )

    def _ended(
        self, model: str, expected: bytes, sent: float, code: grpc.StatusCode, details: str, body: bytes
    ) -> None:
        ended = time.monotonic()
        right = code is grpc.StatusCode.OK and (
            pb.ModelInferResponse.FromString(body).raw_output_contents[0] == expected
        )
        with self._lock:
            self._outcomes.append(Outcome(model, sent, ended, code, details, right))


@final
class Callers:
    """So many clients, each of which waits for its answer before it asks again, as long as the block runs."""

    def __init__(self, address: str, count: int, make: Callable[[int], pb.ModelInferRequest]) -> None:
        self._client = Client(address)
        self._make = make
        self._ending = threading.Event()
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> Callers:
        self._client.call("ServerLive", pb.ServerLiveRequest(), wait_for_ready=True).ok()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            reply = self._client.infer(self._make(next(self._numbers)))
            if reply.code is not grpc.StatusCode.OK:
                self.failures.append(f"{reply.code.name}: {reply.details}")
            self.seconds.append(reply.seconds)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many of each model, status and text, for failure messages."""
    kinds = Counter(
        "OK" if one.right else f"{one.model} {one.code.name}: {one.details[:200] or 'not its own values'}"
        for one in outcomes
    )
    return "; ".join(f"{count} x {kind}" for kind, count in kinds.most_common())


def median(values: Iterable[float]) -> float:
    """The middle one."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
