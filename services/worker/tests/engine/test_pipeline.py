"""What overlaps with what, and what does not."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from services.worker.tests.engine.fakes import MODEL, TERMS, Device, Recorder, make_engine, submission

from reactant_core.clock import SYSTEM_CLOCK
from reactant_core.errors import DeadlineExceeded
from reactant_core.testing import FakeClock, eventually_sync
from reactant_policy.pipeline import STALL_SECONDS
from reactant_policy.scheduling.scheduler import Scheduler
from reactant_worker.engine.dispatcher import Dispatcher


def begin(engine: Dispatcher, device: Device, *rows: int) -> None:
    """Submits one request after the other, tags 0, 1, ...; returns when the first computes."""
    engine.submit([submission(0, rows[0])])
    eventually_sync(lambda: device.launched == [[rows[0]]])
    for tag, count in enumerate(rows[1:], 1):
        engine.submit([submission(tag, count)])


def sleeps(engine: Dispatcher) -> bool:
    """The dispatcher has seen what waits, and sleeps until its time or an end: nothing else tells."""
    return engine._state._awaits_end


def test_the_next_is_put_together_while_one_computes_and_launched_after_it(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    begin(engine, device, 1, 8, 7)
    eventually_sync(lambda: device.staged == [[1], [8]])
    assert device.launched == [[1]]
    device.let()
    recorder.completed(0)
    eventually_sync(lambda: device.launched == [[1], [8]])
    eventually_sync(lambda: device.staged == [[1], [8], [7]])
    device.open()
    recorder.wait(1, 2)
    assert device.most == 1


def test_a_device_that_queues_has_the_next_at_once(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    device.queues = True
    begin(engine, device, 1, 8, 7)
    eventually_sync(lambda: device.launched == [[1], [8]])
    assert engine.depth(MODEL) == 1
    device.open()
    recorder.wait(0, 1, 2)
    assert device.ended == [[1], [8], [7]]


@pytest.mark.parametrize("depth", [1, 3])
def test_the_depth_bounds_what_is_in_flight(recorder: Recorder, device: Device, depth: int) -> None:
    engine = make_engine(recorder, depth=depth)
    engine.attach(MODEL, device, TERMS)
    engine.start()
    begin(engine, device, 8, 8, 8, 8, 8)
    eventually_sync(lambda: len(device.staged) == depth)
    device.let()
    eventually_sync(lambda: len(device.launched) == 2 and len(device.staged) == depth + 1)
    device.open()
    assert engine.stop(10)


def test_what_lies_ready_still_waits_and_can_leave(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    begin(engine, device, 1)
    gone, kept = submission("gone", 3), submission("kept", 4)
    engine.submit([gone, kept])
    eventually_sync(lambda: device.staged == [[1], [3, 4]])
    assert engine.depth(MODEL) == engine.statistics(MODEL).depth == 2
    assert engine.cancel(gone)
    assert not engine.cancel(gone)
    assert engine.depth(MODEL) == 1
    device.open()
    np.testing.assert_array_equal(recorder.completed("kept").outputs[0], np.full((4, 2), 8.0))
    assert "gone" not in recorder.outcomes
    statistics = engine.statistics(MODEL)
    assert (statistics.dispatches, statistics.requests, statistics.rows) == (2, 2, 5)


def test_what_lies_ready_is_not_launched_when_all_have_left(
    engine: Dispatcher, device: Device, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    refunded: list[int] = []
    monkeypatch.setattr(Scheduler, "withdrawn", lambda _, dispatch, now: refunded.append(dispatch.rows))
    begin(engine, device, 1)
    gone = [submission("gone", 3), submission("gone too", 4)]
    engine.submit(gone)
    eventually_sync(lambda: device.staged == [[1], [3, 4]])
    assert all(engine.cancel(request) for request in gone)
    engine.submit([submission("next", 2)])
    device.open()
    recorder.completed("next")
    assert device.launched == [[1], [2]]
    assert device.discarded == [[3, 4]]
    assert refunded == [7]
    assert engine.statistics(MODEL).dispatches == 2
    eventually_sync(lambda: not engine.busy())


def test_what_lies_ready_is_refused_when_its_deadline_passes(recorder: Recorder, device: Device) -> None:
    clock = FakeClock(100.0)
    engine = make_engine(recorder, clock=clock)
    engine.attach(MODEL, device, TERMS)
    engine.start()
    begin(engine, device, 1)
    engine.submit([submission("late", 3, deadline=105.0), submission("fine", 4)])
    eventually_sync(lambda: device.staged == [[1], [3, 4]])
    clock.advance(10.0)
    device.open()
    recorder.wait("late", "fine")
    assert isinstance(recorder.outcomes["late"], DeadlineExceeded)
    recorder.completed("fine")
    assert engine.statistics(MODEL).requests == 2
    assert engine.stop(10)


def test_all_cancelled_while_the_pipeline_is_full_leaves_a_working_engine(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    begin(engine, device, 8, 8)
    eventually_sync(lambda: len(device.staged) == 2)
    waiting = [submission(f"gone {n}") for n in range(5)]
    engine.submit(waiting)
    eventually_sync(lambda: sleeps(engine))
    assert all(engine.cancel(request) for request in waiting)
    device.open()
    recorder.wait(0, 1)
    engine.submit([submission("next", 2)])
    recorder.completed("next")


def test_a_short_one_alone_stays_on_the_thread_that_chose_it(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    engine.observe(MODEL, None, 1, 0.0001)
    device.open()
    engine.submit([submission("short")])
    recorder.completed("short")
    # The only thread there is for the next must not be in this one.
    device.runs_in_launch = True
    engine.submit([submission("unknown", 4)])
    recorder.completed("unknown")
    assert device.threads == ["dispatcher", "completion"]


def test_the_next_is_not_chosen_long_before_its_turn(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    engine.observe(MODEL, None, 1, 60.0)
    begin(engine, device, 1, 2)
    eventually_sync(lambda: sleeps(engine))
    engine.submit([submission("joins", 3)])
    device.open()
    recorder.wait(0, 1, "joins")
    assert device.staged == [[1], [2, 3]]


def test_a_program_that_runs_in_its_launch_keeps_no_answers_back(
    engine: Dispatcher, device: Device, recorder: Recorder
) -> None:
    device.runs_in_launch = True
    begin(engine, device, 8, 8)
    eventually_sync(lambda: len(device.staged) == 2)
    device.let()
    recorder.completed(0)
    eventually_sync(lambda: len(device.launched) == 2)
    device.open()
    recorder.completed(1)


def test_the_times_of_an_answer_add_up(recorder: Recorder, device: Device) -> None:
    clock = FakeClock(100.0)
    engine = make_engine(recorder, clock=clock)
    engine.attach(MODEL, device, TERMS)
    engine.start()
    engine.submit([submission(0, arrived=90.0)])
    eventually_sync(lambda: device.launched == [[1]])
    engine.submit([submission(1, 8, arrived=95.0)])
    eventually_sync(lambda: device.staged == [[1], [8]])
    clock.advance(7.0)
    device.let()
    first = recorder.completed(0)
    eventually_sync(lambda: device.launched == [[1], [8]])
    clock.advance(2.0)
    device.let()
    second = recorder.completed(1)
    assert (first.queue_seconds, first.compute_seconds, first.done) == (10.0, 7.0, 107.0)
    # In the queue from 95, ready from 100, on the device from 107 to 109.
    assert (second.queue_seconds, second.compute_seconds, second.done) == (12.0, 2.0, 109.0)
    assert engine.statistics(MODEL).compute_seconds == 9.0
    assert engine.stop(10)


def test_an_execution_that_does_not_end_is_told_of(recorder: Recorder, device: Device) -> None:
    clock = FakeClock(100.0)
    engine = make_engine(recorder, clock=clock)
    engine.attach(MODEL, device, TERMS)
    engine.observe(MODEL, None, 1, 60.0)
    engine.start()
    assert engine.stalled_seconds() == 0.0
    begin(engine, device, 1)
    clock.advance(599.0)
    assert engine.stalled_seconds() == 0.0
    clock.advance(3.0)
    assert engine.stalled_seconds() == pytest.approx(2.0)
    device.let()
    recorder.completed(0)
    eventually_sync(lambda: not engine.stalled_seconds())
    engine.submit([submission("unknown", 8)])
    eventually_sync(lambda: device.launched == [[1], [8]])
    clock.advance(STALL_SECONDS + 1)
    assert engine.stalled_seconds() == pytest.approx(1.0)
    device.open()
    assert engine.stop(10)


def test_nothing_of_a_model_is_kept_once_it_has_left(engine: Dispatcher, recorder: Recorder) -> None:
    for tag in ("through the completion thread", "through the dispatcher"):
        model = Device()
        gone = weakref.ref(model)
        engine.attach("leaving", model, TERMS)
        if tag == "through the dispatcher":
            engine.observe("leaving", None, 1, 0.0001)
        model.open()
        engine.submit([submission(tag, model="leaving")])
        recorder.completed(tag)
        engine.detach("leaving")
        del model
        eventually_sync(lambda gone=gone: gc.collect() >= 0 and gone() is None)  # type: ignore[misc]


def test_busy_while_something_is_in_flight(engine: Dispatcher, device: Device, recorder: Recorder) -> None:
    assert not engine.busy()
    begin(engine, device, 1)
    assert engine.busy()
    device.open()
    recorder.completed(0)
    eventually_sync(lambda: not engine.busy())


def test_a_request_waits_for_others_no_longer_than_its_model_allows(
    recorder: Recorder, device: Device
) -> None:
    engine = make_engine(recorder)
    engine.attach(MODEL, device, replace(TERMS, max_queue_delay_seconds=0.05))
    engine.start()
    device.open()
    begun = SYSTEM_CLOCK.monotonic()
    engine.submit([submission("alone")])
    recorder.completed("alone")
    assert SYSTEM_CLOCK.monotonic() - begun >= 0.05
    engine.submit([submission("half", 4, arrived=SYSTEM_CLOCK.monotonic() + 60.0)])
    engine.submit([submission("half too", 4, arrived=SYSTEM_CLOCK.monotonic() + 60.0)])
    recorder.wait("half", "half too")
    assert device.launched == [[1], [4, 4]]
    assert engine.stop(10)
