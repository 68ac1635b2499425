from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from reactant_core.clock import SYSTEM_CLOCK
from reactant_core.errors import DeadlineExceeded, InternalError, ModelUnavailable
from reactant_policy.scheduling.scheduler import ModelTerms, Scheduler
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.dispatcher import Dispatcher
from reactant_worker.engine.port import Arrays, Completed, ExecutionTimes, Outcome, Submission

TERMS = ModelTerms((1, 4, 8), coalesces=True, max_batch_size=8)


class Gated:
    """Doubles its input; each execution waits until the test lets it go."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.started = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.fail = False
        self.short = False

    def execute(
        self, size: int, variant: int | None, requests: Sequence[Arrays], rows: Sequence[int]
    ) -> tuple[list[Arrays], ExecutionTimes]:
        self.batches.append(list(rows))
        self.started.release()
        assert self.gate.acquire(timeout=10)
        if self.fail:
            raise RuntimeError("device on fire")
        if self.short:
            return [], ExecutionTimes(0.0, 0.001, 0.0)
        return [(inputs[0] * 2,) for inputs in requests], ExecutionTimes(0.0, 0.001, 0.0)


class Recorder:
    def __init__(self) -> None:
        self.outcomes: dict[Any, Outcome] = {}
        self.arrived = threading.Semaphore(0)

    def __call__(self, outcomes: Sequence[tuple[Submission, Outcome]]) -> None:
        for submission, outcome in outcomes:
            assert submission.tag not in self.outcomes, "an outcome came twice"
            self.outcomes[submission.tag] = outcome
            self.arrived.release()

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self.arrived.acquire(timeout=10)


def submission(tag: Any, rows: int = 1, model: str = "m", deadline: float | None = None) -> Submission:
    return Submission(
        model, (np.full((rows, 2), float(rows)),), rows, None, SYSTEM_CLOCK.monotonic(), deadline, tag
    )


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def runnable() -> Gated:
    return Gated()


@pytest.fixture
def engine(recorder: Recorder, runnable: Gated) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(Scheduler(), SYSTEM_CLOCK, recorder)
    dispatcher.attach("m", runnable, TERMS)
    for size in TERMS.sizes:
        dispatcher.observe("m", None, size, 0.001)
    dispatcher.start()
    yield dispatcher
    runnable.gate.release(1000)
    dispatcher.stop()


def occupy(engine: Dispatcher, runnable: Gated) -> None:
    """Leaves the device busy with one request, tag 'first'."""
    engine.submit([submission("first")])
    assert runnable.started.acquire(timeout=10)


def test_what_waits_together_runs_together(engine: Dispatcher, runnable: Gated, recorder: Recorder) -> None:
    occupy(engine, runnable)
    engine.submit([submission(tag, rows) for tag, rows in enumerate([1, 2, 3, 4])])
    assert engine.depth("m") == 4
    runnable.gate.release(10)
    recorder.wait(5)
    assert runnable.batches == [[1], [1, 2, 3], [4]]
    done = recorder.outcomes[1]
    assert isinstance(done, Completed)
    np.testing.assert_array_equal(done.outputs[0], np.full((2, 2), 4.0))
    statistics = engine.statistics("m")
    assert (statistics.dispatches, statistics.requests, statistics.rows) == (3, 5, 11)
    assert statistics.compute_seconds == pytest.approx(0.003)


def test_a_cancelled_request_never_runs(engine: Dispatcher, runnable: Gated, recorder: Recorder) -> None:
    occupy(engine, runnable)
    waiting, kept = submission("gone", 2), submission("kept", 3)
    engine.submit([waiting, kept])
    assert engine.cancel(waiting)
    assert not engine.cancel(waiting)
    runnable.gate.release(10)
    recorder.wait(2)
    assert runnable.batches == [[1], [3]]
    assert "gone" not in recorder.outcomes
    assert not engine.cancel(kept)


def test_an_expired_request_is_refused_without_running(
    engine: Dispatcher, runnable: Gated, recorder: Recorder
) -> None:
    occupy(engine, runnable)
    engine.submit([submission("late", deadline=SYSTEM_CLOCK.monotonic() - 1), submission("fine", 2)])
    runnable.gate.release(10)
    recorder.wait(3)
    assert isinstance(recorder.outcomes["late"], DeadlineExceeded)
    assert isinstance(recorder.outcomes["fine"], Completed)
    assert runnable.batches == [[1], [2]]


def test_a_failed_execution_fails_its_requests_only(
    engine: Dispatcher, runnable: Gated, recorder: Recorder
) -> None:
    runnable.fail = True
    occupy(engine, runnable)
    runnable.gate.release()
    recorder.wait(1)
    failure = recorder.outcomes["first"]
    assert isinstance(failure, InternalError)
    assert "device on fire" in failure.message
    runnable.fail = False
    runnable.gate.release()
    engine.submit([submission("second")])
    recorder.wait(1)
    assert isinstance(recorder.outcomes["second"], Completed)


def test_a_runnable_that_answers_too_few_fails_its_requests_only(
    engine: Dispatcher, runnable: Gated, recorder: Recorder
) -> None:
    runnable.short = True
    occupy(engine, runnable)
    runnable.gate.release()
    recorder.wait(1)
    failure = recorder.outcomes["first"]
    assert isinstance(failure, InternalError)
    assert "dispatch failed" in failure.message
    runnable.short = False
    runnable.gate.release()
    engine.submit([submission("second")])
    recorder.wait(1)
    assert isinstance(recorder.outcomes["second"], Completed)
    assert engine.alive


def test_detaching_answers_what_waits(engine: Dispatcher, runnable: Gated, recorder: Recorder) -> None:
    occupy(engine, runnable)
    engine.submit([submission("waiting")])
    engine.detach("m")
    recorder.wait(1)
    refused = recorder.outcomes["waiting"]
    assert isinstance(refused, ModelUnavailable)
    assert refused.not_started
    engine.submit([submission("after")])
    recorder.wait(1)
    assert isinstance(recorder.outcomes["after"], ModelUnavailable)
    runnable.gate.release()
    recorder.wait(1)
    assert isinstance(recorder.outcomes["first"], Completed)


def test_stopping_answers_what_waits(recorder: Recorder) -> None:
    runnable = Gated()
    dispatcher = Dispatcher(Scheduler(), SYSTEM_CLOCK, recorder)
    dispatcher.attach("m", runnable, TERMS)
    dispatcher.start()
    occupy(dispatcher, runnable)
    dispatcher.submit([submission("waiting")])
    runnable.gate.release()
    stopper = threading.Thread(target=dispatcher.stop)
    stopper.start()
    runnable.gate.release(10)
    stopper.join(10)
    recorder.wait(2)
    assert isinstance(recorder.outcomes["first"], Completed)
    assert isinstance(recorder.outcomes["waiting"], ModelUnavailable | Completed)


def test_the_bridge_submits_one_iteration_together_and_cancels(runnable: Gated) -> None:
    async def scenario() -> None:
        bridge = EngineBridge(asyncio.get_running_loop())
        dispatcher = Dispatcher(Scheduler(), SYSTEM_CLOCK, bridge.deliver)
        dispatcher.attach("m", runnable, TERMS)
        bridge.connect(dispatcher)
        dispatcher.start()
        try:
            first = [asyncio.ensure_future(bridge.run(submission(None, 1))) for _ in range(4)]
            assert await asyncio.to_thread(runnable.started.acquire, timeout=10)
            doomed = asyncio.ensure_future(bridge.run(submission(None, 5)))
            await asyncio.sleep(0)
            assert bridge.buffered("m") == 1
            early = asyncio.ensure_future(bridge.run(submission(None, 6)))
            await asyncio.sleep(0)
            early.cancel()
            doomed.cancel()
            await asyncio.wait((doomed, early))
            assert dispatcher.depth("m") == bridge.buffered("m") == 0
            runnable.gate.release(10)
            results = await asyncio.gather(*first)
            assert [r.outputs[0].shape for r in results] == [(1, 2)] * 4
            assert runnable.batches == [[1, 1, 1, 1]]
            runnable.fail = True
            with pytest.raises(InternalError, match="device on fire"):
                await bridge.run(submission(None, 1))
        finally:
            runnable.gate.release(100)
            await asyncio.to_thread(dispatcher.stop)

    asyncio.run(scenario())
