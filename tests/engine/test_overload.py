"""`edf` under five times what the device can do: it does what can be done in time, and nothing else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import grpc
import pytest
from tests.engine.settings import FULL
from tests.engine.traffic import Arrivals, Closed, Make, Outcome, codes, percentile, summary
from tests.support.messages import echo
from tests.support.metrics import Page
from tests.support.target import Target

from reactant_proto import inference_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

MODEL = "medium"
SECONDS = 20.0 if FULL else 2.5
OVERLOAD = 5.0
TIMEOUT_SECONDS = 0.2
GOODPUT = 0.9 if FULL else 0.0
"""Of the capacity measured before; a machine that does other things beside has another one every second."""
BUSY = 0.75
"""Part of the time in which the device worked."""
IN_TIME = 0.25 if FULL else 0.6
"""Seconds to an answer or a refusal, by the server's log; without a deadline kept it would be seconds."""
WASTED = 0.02 if FULL else 0.25
"""Part of the executions whose answers came too late: no machine is always as fast as it was."""


@final
@dataclass(frozen=True, slots=True)
class Run:
    """What clients saw of a while of requests, and how the server's counters moved by them."""

    outcomes: Sequence[Outcome]
    seconds: float
    before: Page
    after: Page

    @property
    def codes(self) -> dict[str, float]:
        """How many ended with each status, as the client saw them."""
        return dict(codes(self.outcomes))

    @property
    def counted(self) -> dict[str, float]:
        """The same as the server has it."""
        before, after = (page.by_code(MODEL) for page in (self.before, self.after))
        changes = {code: after[code] - before.get(code, 0) for code in after}
        return {code: change for code, change in changes.items() if change}

    def change(self, name: str) -> float:
        """How far a counter of the model has moved."""
        return self.after.value(name, model=MODEL) - self.before.value(name, model=MODEL)


def capacity(target: Target) -> float:
    """Requests a second that the device can do."""
    with Closed(target.process.address, lambda n: echo(model=MODEL), 8) as traffic:
        time.sleep(0.5)
        begin = time.monotonic()
        time.sleep(1.5)
        end = time.monotonic()
    traffic.assert_all_right()
    ended = [one for one in traffic.outcomes if begin <= one.ended < end]
    return len(ended) / (end - begin)


def overloaded(target: Target, rate: float, request: Make, deadline: float | None = None) -> Run:
    """Sends `rate` requests a second, each on its own."""
    before, begin = target.page(), time.monotonic()
    with Arrivals(target.process.address, request, rate, deadline=deadline) as traffic:
        time.sleep(SECONDS)
        seconds = time.monotonic() - begin
    target.assert_quiet()
    return Run(traffic.outcomes, seconds, before, target.page())


def with_timeout(number: int) -> pb.ModelInferRequest:
    return echo(model=MODEL, start=float(number % 1000), parameters={"timeout": int(TIMEOUT_SECONDS * 1e6)})


def answers(target: Target) -> list[dict[str, Any]]:
    """What the server has logged of each request of the model, in order."""
    events = target.process.events()
    return [event for event in events if event.get("event") == "answered" and event["model"] == MODEL]


def test_overload_by_five(edf: Target) -> None:
    """`timeout` 200 ms, no gRPC deadline: the server alone decides."""
    possible = capacity(edf)
    run = overloaded(edf, OVERLOAD * possible, with_timeout)

    answered = [one for one in run.outcomes if one.code is grpc.StatusCode.OK]
    logged = answers(edf)[-len(run.outcomes) :]
    slowest = percentile([event["seconds"] for event in logged], 1.0 if FULL else 0.99)
    executed = run.change("worker_rows_served_total")
    print(
        f"capacity {possible:.1f}/s, sent {len(run.outcomes) / run.seconds:.0f}/s, "
        f"goodput {len(answered) / run.seconds / possible:.3f}, "
        f"executed {executed:.0f} for {len(answered)} OK, "
        f"slowest {1e3 * slowest:.0f} ms, "
        f"device {run.change('worker_compute_seconds_total') / run.seconds:.2f}"
    )
    assert run.codes.keys() == {"OK", "DEADLINE_EXCEEDED"}, summary(run.outcomes)
    assert all(one.right for one in answered)
    assert run.counted == run.codes
    assert len(answered) <= executed <= (1 + WASTED) * len(answered)
    assert Counter(event["code"] for event in logged) == run.codes
    assert slowest < IN_TIME
    assert run.change("worker_compute_seconds_total") > BUSY * run.seconds
    assert len(answered) / run.seconds > GOODPUT * possible
