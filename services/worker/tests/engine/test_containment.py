"""One fault stays one fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from services.worker.tests.engine.fakes import MODEL, TERMS, Device, Recorder, make_engine, submission

from reactant_core.errors import InternalError
from reactant_core.testing import eventually_sync
from reactant_policy.scheduling.disciplines import make_discipline
from reactant_policy.scheduling.scheduler import Scheduler
from reactant_worker.engine.dispatcher import Dispatcher
from reactant_worker.engine.port import Outcome, Submission


def failure(recorder: Recorder, tag: str) -> str:
    """The message of a request's INTERNAL."""
    recorder.wait(tag)
    outcome = recorder.outcomes[tag]
    assert isinstance(outcome, InternalError), outcome
    return outcome.message


@pytest.mark.parametrize("queues", [False, True], ids=["launched when free", "launched early"])
@pytest.mark.parametrize("alone", [False, True], ids=["handed over", "alone"])
@pytest.mark.parametrize("where", ["stage", "launch", "wait", "outputs"])
@pytest.mark.parametrize("error", [RuntimeError("on fire"), SystemExit("on fire")], ids=["error", "exit"])
def test_a_failed_execution_fails_its_requests_only(
    recorder: Recorder, device: Device, where: str, alone: bool, queues: bool, error: BaseException
) -> None:
    engine = make_engine(recorder)
    engine.attach(MODEL, device, TERMS)
    engine.start()
    device.queues, device.failing, device.error = queues, where, error
    if alone:
        engine.observe(MODEL, None, 1, 0.0001)
    device.open()
    engine.submit([submission("first"), submission("second", 8)])
    assert "on fire" in failure(recorder, "first")
    assert "on fire" in failure(recorder, "second")
    device.failing = ""
    engine.submit([submission("third")])
    recorder.completed("third")
    assert engine.alive
    assert engine.stop(10)


def test_those_who_left_a_failed_execution_hear_nothing(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    engine.submit([submission("first")])
    eventually_sync(lambda: device.launched == [[1]])
    gone = submission("gone", 3)
    engine.submit([gone, submission("kept", 4)])
    eventually_sync(lambda: len(device.staged) == 2)
    assert engine.cancel(gone)
    device.failing = "wait"
    device.open()
    failure(recorder, "first")
    failure(recorder, "kept")
    assert "gone" not in recorder.outcomes


def test_a_model_that_answers_too_few_fails_its_requests_only(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    device.short = True
    device.open()
    engine.submit([submission("one", 2), submission("other", 2)])
    assert "1 answers for 2 requests" in failure(recorder, "one")
    failure(recorder, "other")
    device.short = False
    engine.submit([submission("next")])
    recorder.completed("next")


def fails(*_arguments: object) -> None:
    raise RuntimeError("no idea")


def test_a_failed_decision_answers_who_waits_and_ends_nothing(
    recorder: Recorder, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = Scheduler(make_discipline("fifo"))
    engine = make_engine(recorder, scheduler=scheduler)
    engine.attach(MODEL, device, TERMS)
    engine.start()
    device.open()
    for method in ("next", "observe"):
        with monkeypatch.context() as broken:
            broken.setattr(scheduler, method, fails)
            engine.submit([submission(method), submission(f"{method} too")])
            assert "no idea" in failure(recorder, method)
            assert "no idea" in failure(recorder, f"{method} too")
        assert engine.depth(MODEL) == 0
        engine.submit([submission(f"after {method}")])
        recorder.completed(f"after {method}")
    assert engine.alive
    assert engine.stop(10)


def test_a_request_that_cannot_be_queued_takes_nobody_with_it(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    device.open()
    engine.submit([submission("fine"), submission("too many", 9), submission("fine too")])
    assert "9 rows" in failure(recorder, "too many")
    recorder.completed("fine")
    recorder.completed("fine too")


def test_a_receiver_that_fails_ends_nothing(device: Device) -> None:
    heard: list[object] = []

    def deliver(outcomes: Sequence[tuple[Submission, Outcome]]) -> None:
        heard.extend(submission.tag for submission, _ in outcomes)
        raise RuntimeError("nobody home")

    engine = make_engine(deliver)
    engine.attach(MODEL, device, TERMS)
    engine.start()
    device.open()
    for number in range(3):
        engine.submit([submission(number)])
        eventually_sync(lambda number=number: number in heard)  # type: ignore[misc]
    assert engine.alive
    assert engine.stop(10)
