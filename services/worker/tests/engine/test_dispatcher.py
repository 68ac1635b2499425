"""Requests in, outcomes out."""

from __future__ import annotations

import numpy as np
from services.worker.tests.engine.fakes import MODEL, TERMS, Device, Recorder, make_engine, submission

from reactant_core.clock import SYSTEM_CLOCK
from reactant_core.errors import DeadlineExceeded, ModelUnavailable
from reactant_core.testing import eventually_sync
from reactant_policy.scheduling.disciplines import make_discipline
from reactant_policy.scheduling.scheduler import Scheduler
from reactant_worker.engine.dispatcher import Dispatcher


def occupy(engine: Dispatcher, device: Device) -> None:
    """Leaves one execution on the device, tag 'first', and one of 8 rows behind it, tag 'second'."""
    engine.submit([submission("first")])
    eventually_sync(lambda: device.launched == [[1]])
    engine.submit([submission("second", 8)])
    eventually_sync(lambda: device.staged == [[1], [8]])


def test_what_waits_together_runs_together(engine: Dispatcher, device: Device, recorder: Recorder) -> None:
    occupy(engine, device)
    engine.submit([submission(tag, rows) for tag, rows in enumerate([1, 2, 3, 4])])
    device.open()
    recorder.wait("first", "second", 0, 1, 2, 3)
    assert device.launched == [[1], [8], [1, 2, 3], [4]]
    np.testing.assert_array_equal(recorder.completed(1).outputs[0], np.full((2, 2), 4.0))
    statistics = engine.statistics(MODEL)
    assert (statistics.dispatches, statistics.requests, statistics.rows) == (4, 6, 19)
    assert statistics.compute_seconds > 0
    assert statistics.depth == 0


def test_a_request_that_left_its_queue_never_runs(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    occupy(engine, device)
    gone, kept = submission("gone", 2), submission("kept", 3)
    engine.submit([gone, kept])
    assert engine.depth(MODEL) == 3
    assert engine.cancel(gone)
    assert not engine.cancel(gone)
    assert engine.depth(MODEL) == 2
    device.open()
    recorder.completed("kept")
    assert device.launched == [[1], [8], [3]]
    assert "gone" not in recorder.outcomes
    assert not engine.cancel(kept)


def test_a_request_past_its_deadline_never_runs(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    occupy(engine, device)
    engine.submit([submission("late", deadline=SYSTEM_CLOCK.monotonic() - 1), submission("fine", 2)])
    device.open()
    recorder.completed("fine")
    recorder.wait("late")
    late = recorder.outcomes["late"]
    assert isinstance(late, DeadlineExceeded)
    assert late.message == "the deadline passed in the queue"
    assert device.launched == [[1], [8], [2]]


def test_a_request_that_would_be_late_is_told_so_and_never_runs(recorder: Recorder, device: Device) -> None:
    engine = make_engine(recorder, scheduler=Scheduler(make_discipline("edf")))
    engine.attach(MODEL, device, TERMS)
    for size in TERMS.sizes:
        engine.observe(MODEL, None, size, 60.0)
    engine.start()
    engine.submit([submission("late", deadline=SYSTEM_CLOCK.monotonic() + 30)])
    recorder.wait("late")
    late = recorder.outcomes["late"]
    assert isinstance(late, DeadlineExceeded)
    assert late.message == "the deadline cannot be met any more"
    assert not device.staged
    assert engine.stop(10)


def test_a_sub_call_of_a_running_meta_goes_first(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    engine.attach("other", device, TERMS)
    occupy(engine, device)
    engine.submit([submission("regular", 3), submission("sub", 4, model="other", committed=True)])
    device.open()
    recorder.wait("regular", "sub")
    assert device.launched == [[1], [8], [4], [3]]


def test_detaching_refuses_what_waits_and_finishes_what_was_begun(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    occupy(engine, device)
    engine.submit([submission("waiting")])
    engine.detach(MODEL)
    recorder.wait("waiting")
    refused = recorder.outcomes["waiting"]
    assert isinstance(refused, ModelUnavailable)
    assert refused.not_started
    engine.submit([submission("after")])
    recorder.wait("after")
    assert isinstance(recorder.outcomes["after"], ModelUnavailable)
    device.open()
    recorder.completed("first")
    recorder.completed("second")
    assert engine.depth(MODEL) == 0


def test_stopping_refuses_what_waits_and_ends_both_threads(recorder: Recorder, device: Device) -> None:
    engine = make_engine(recorder)
    engine.attach(MODEL, device, TERMS)
    engine.start()
    assert engine.alive
    occupy(engine, device)
    engine.submit([submission("waiting")])
    # The device does not end what it has: the threads cannot end, but nobody waits for them.
    assert not engine.stop(0.01)
    for tag in ("second", "waiting"):
        refused = recorder.outcomes[tag]
        assert isinstance(refused, ModelUnavailable)
        assert refused.not_started
    engine.submit([submission("after")])
    assert isinstance(recorder.outcomes["after"], ModelUnavailable)
    device.open()
    assert engine.stop(10)
    recorder.completed("first")
    assert device.launched == [[1]]


def test_weights_can_be_changed(engine: Dispatcher) -> None:
    engine.set_weight(MODEL, 3.0)
