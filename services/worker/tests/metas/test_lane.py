from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from reactant_core.testing import async_test, eventually
from reactant_worker.metas.lane import Lane


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane(2, "meta")
    yield made
    made.close()


class Held:
    """Calls that end when the test says, and which of them have begun."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.gate = threading.Event()

    def __call__(self, number: int) -> int:
        self.begun.append(number)
        assert self.gate.wait(10)
        return number


@async_test
async def test_a_burst_is_counted_exactly_before_a_thread_has_woken(lane: Lane) -> None:
    held = Held()
    tasks = [asyncio.ensure_future(lane.run(partial(held, n), tag="m")) for n in range(6)]
    await asyncio.sleep(0)
    assert lane.waiting("m") == 4
    assert lane.waiting("other") == 0
    held.gate.set()
    assert await asyncio.gather(*tasks) == [0, 1, 2, 3, 4, 5]
    assert sorted(held.begun[:2]) == [0, 1]
    assert lane.waiting("m") == 0


@async_test
async def test_who_waits_leaves_at_once_and_is_never_run(lane: Lane) -> None:
    held = Held()
    tasks = [asyncio.ensure_future(lane.run(partial(held, n), tag="m")) for n in range(4)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]
    assert lane.waiting("m") == 1
    held.gate.set()
    await asyncio.gather(tasks[0], tasks[1], tasks[3])
    assert sorted(held.begun) == [0, 1, 3]


@async_test
async def test_a_thread_stays_taken_until_its_call_is_back(lane: Lane) -> None:
    held = Held()
    tasks = [asyncio.ensure_future(lane.run(partial(held, n), tag="m")) for n in range(3)]
    await eventually(lambda: len(held.begun) == 2)
    for task in tasks[:2]:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(0)
    assert lane.waiting("m") == 1
    assert lane.running == 2
    held.gate.set()
    assert await tasks[2] == 2


@async_test
async def test_a_turn_that_comes_as_its_owner_leaves_goes_to_the_next(lane: Lane) -> None:
    held = Held()
    tasks = [asyncio.ensure_future(lane.run(partial(held, n), tag="m")) for n in range(4)]
    await eventually(lambda: len(held.begun) == 2)
    lane._give_back()  # the turn of the third is set, and it has not seen that yet
    tasks[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]
    assert lane.waiting("m") == 0
    held.gate.set()
    assert await tasks[3] == 3


@async_test
async def test_a_thread_that_is_free_as_its_waiter_is_cancelled_goes_to_the_next(lane: Lane) -> None:
    """Cancelled, and not yet awake to leave the queue."""
    held = Held()
    tasks = [asyncio.ensure_future(lane.run(partial(held, n), tag="m")) for n in range(4)]
    await eventually(lambda: len(held.begun) == 2)
    tasks[2].cancel()
    lane._give_back()
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]
    assert lane.waiting("m") == 0
    held.gate.set()
    assert await tasks[3] == 3


@async_test
async def test_a_storm_of_cancels_loses_no_thread(lane: Lane) -> None:
    for _ in range(50):
        tasks = [asyncio.ensure_future(lane.run(lambda: 7, tag="m")) for _ in range(8)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await eventually(lambda: lane._free == 2)
    assert lane.waiting("m") == 0


@async_test
async def test_what_a_call_raises_comes_out_and_frees_its_thread(lane: Lane) -> None:
    def fail() -> None:
        raise ValueError("no")

    for _ in range(5):
        with pytest.raises(ValueError, match="no"):
            await lane.run(fail, tag="m")
    assert await lane.run(lambda: 7, tag="m") == 7
