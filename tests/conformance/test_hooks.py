"""What a failing hook leaves behind: a full account in the log, a short one for the client."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from tests.support.busy import unique
from tests.support.messages import arrays, echo, floats
from tests.support.target import Target


def test_the_traceback_is_in_the_log_only(target: Target) -> None:
    name = unique("failing")

    reply = target.client.infer(echo(model="hook_faults", id=name, parameters={"fault": "raise"}))

    assert reply.code is grpc.StatusCode.INTERNAL
    assert "the vocabulary has no such word" in reply.details
    (event,) = [event for event in target.process.events() if event.get("request") == name]
    assert event["level"] == "error"
    assert event["model"] == "hook_faults"
    assert "Traceback" in event["exception"]
    assert "model.py" in event["exception"]


def test_a_refusal_by_a_hook_is_no_error_in_the_log(target: Target) -> None:
    name = unique("refused")

    reply = target.client.infer(echo(model="hook_faults", id=name, parameters={"fault": "invalid"}))

    assert reply.code is grpc.StatusCode.INVALID_ARGUMENT
    assert not [event for event in target.process.events() if event.get("request") == name]


@pytest.fixture
def fresh(explicit: Target) -> Iterator[Target]:
    """A worker whose `hook_faults` has not served a request yet."""
    explicit.client.load("hook_faults").ok()
    yield explicit
    explicit.client.unload("hook_faults").ok()


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["big_endian", "strided", "transposed", "wrong_dtype", "wrong_axis", "raise"]
)
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_what_a_hook_does_to_one_request_stays_with_it(fresh: Target, fault: str, rows: int) -> None:
    """The next request of the same model, of any size, gets its own values."""
    fresh.client.infer(echo(rows, model="hook_faults", parameters={"fault": fault, "stage": "preprocess"}))

    for count in (1, 2, 3, 4):
        outputs = arrays(fresh.client.infer(echo(count, model="hook_faults", start=5.0)).ok())
        np.testing.assert_array_equal(outputs["Y"], floats(count, start=5.0))
