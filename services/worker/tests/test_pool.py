from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from reactant_core.testing import async_test, eventually
from reactant_worker.pool import ForeignExit, WorkPool


@pytest.fixture
def pool() -> Iterator[WorkPool]:
    made = WorkPool(1, "test")
    yield made
    made.close()


class Gate:
    """A call that is in a thread until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> str:
        self.entered.set()
        assert self._open.wait(10)
        return "through"

    def open(self) -> None:
        self._open.set()


@async_test
async def test_results_and_errors_come_back(pool: WorkPool) -> None:
    assert await pool.run(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(KeyError):
        await pool.run({}.__getitem__, "x")


@async_test
async def test_nice_threads_are_nice_and_no_others() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    calm = WorkPool(1, "calm", niceness=3)
    try:
        assert await calm.run(niceness) == min(niceness() + 3, 19)
    finally:
        calm.close()


def leave(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), StopIteration(1)],
    ids=lambda e: type(e).__name__,
)
@async_test
async def test_what_would_end_the_process_is_an_ordinary_error(pool: WorkPool, error: BaseException) -> None:
    with pytest.raises(ForeignExit, match=type(error).__name__):
        await pool.run(leave(error))
    assert await pool.run(lambda: "alive") == "alive"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of a fork beside threads
@pytest.mark.parametrize(("raises", "code"), [(False, 0), (True, 1)])
@async_test
async def test_a_forked_child_does_not_come_back(pool: WorkPool, raises: bool, code: int) -> None:
    def fork() -> int:
        child = os.fork()
        if raises and not child:
            raise ValueError("in the child")
        return child

    child = await pool.run(fork)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == code
    assert await pool.run(lambda: "alive") == "alive"


@async_test
async def test_a_cancelled_call_that_waits_never_runs_and_holds_nothing(pool: WorkPool) -> None:
    gate = Gate()
    first = asyncio.ensure_future(pool.run(gate))
    await eventually(gate.entered.is_set)
    payload = np.zeros(1000)
    watched = weakref.ref(payload)
    ran: list[int] = []
    doomed = asyncio.ensure_future(pool.run(lambda p: ran.append(p.size), payload))
    await asyncio.sleep(0)
    doomed.cancel()
    await asyncio.wait([doomed])
    assert doomed.cancelled()
    del payload, doomed
    gc.collect()
    assert watched() is None
    gate.open()
    assert await first == "through"
    assert await pool.run(lambda: "next") == "next"
    assert not ran


@async_test
async def test_calls_that_come_together_each_get_a_thread() -> None:
    for _ in range(10):
        pool = WorkPool(3, "test")
        # One thread is idle, or on its way there; three calls come before it can wake.
        await pool.run(int)
        gates = [Gate(), Gate(), Gate()]
        running = [asyncio.ensure_future(pool.run(gate)) for gate in gates]
        for gate in gates:
            await eventually(gate.entered.is_set)
        assert pool.running == len(gates)
        for gate in gates:
            gate.open()
        assert await asyncio.gather(*running) == ["through"] * len(gates)
        pool.close()


@async_test
async def test_a_stuck_call_keeps_nobody_from_leaving() -> None:
    pool = WorkPool(2, "test")
    gates = [Gate(), Gate()]
    stuck = [asyncio.ensure_future(pool.run(gate)) for gate in gates]
    await eventually(lambda: all(gate.entered.is_set() for gate in gates))
    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("test-"))
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        await pool.run(print)
    for gate, task in zip(gates, stuck, strict=True):
        gate.open()
        assert await task == "through"
