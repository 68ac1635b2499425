"""What a failing hook leaves behind: a full account in the log, a short one for the client."""

from __future__ import annotations

import grpc
from tests.support.busy import unique
from tests.support.messages import echo
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
