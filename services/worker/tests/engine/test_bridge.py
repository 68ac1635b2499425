"""The engine as the event loop sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import final

import pytest
from services.worker.tests.engine.fakes import MODEL, TERMS, Device, make_engine, submission

from reactant_core.errors import InternalError
from reactant_core.testing import FakeClock, async_test, eventually
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.dispatcher import Dispatcher
from reactant_worker.engine.port import Completed, Outcome


class Connected:
    """An engine and a bridge on the running loop."""

    def __init__(self, device: Device) -> None:
        self.bridge = EngineBridge(asyncio.get_running_loop())
        self.engine = make_engine(self.bridge.deliver)
        self.engine.attach(MODEL, device, TERMS)
        self.bridge.connect(self.engine)
        self.engine.start()

    def start(self, rows: int) -> asyncio.Task[Completed]:
        return asyncio.ensure_future(self.bridge.run(submission(None, rows)))


@final
class Waiter:
    """Somebody who waits for an outcome, or has given up."""

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits

    def settle(self, _outcome: Outcome) -> bool:
        return self._waits


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device()
    yield made
    made.open()


@async_test
async def test_what_one_iteration_submits_is_seen_together(device: Device) -> None:
    connected = Connected(device)
    running = [connected.start(1) for _ in range(4)]
    await asyncio.sleep(0)
    assert connected.bridge.buffered(MODEL) == 4
    device.open()
    assert [r.outputs[0].shape for r in await asyncio.gather(*running)] == [(1, 2)] * 4
    assert device.launched == [[1, 1, 1, 1]]
    assert connected.bridge.buffered(MODEL) == 0
    assert await asyncio.to_thread(connected.engine.stop, 10)


@async_test
async def test_whoever_stops_waiting_is_taken_out_wherever_it_waits(device: Device) -> None:
    connected = Connected(device)
    engine, bridge = connected.engine, connected.bridge
    running = connected.start(8)
    await eventually(lambda: device.launched == [[8]])
    staged, queued = connected.start(7), connected.start(6)
    await eventually(lambda: device.staged == [[8], [7]])
    buffered = connected.start(5)
    await asyncio.sleep(0)
    assert (engine.depth(MODEL), bridge.buffered(MODEL)) == (2, 1)
    for task in (staged, queued, buffered, running):
        task.cancel()
    await asyncio.wait([staged, queued, buffered, running])
    assert (engine.depth(MODEL), bridge.buffered(MODEL)) == (0, 0)
    device.open()
    await connected.start(1)
    assert device.launched == [[8], [1]]
    assert await asyncio.to_thread(engine.stop, 10)


@async_test
async def test_a_failure_comes_out_where_it_is_awaited(device: Device) -> None:
    connected = Connected(device)
    device.failing = "wait"
    device.open()
    with pytest.raises(InternalError, match="device on fire"):
        await connected.start(1)
    assert await asyncio.to_thread(connected.engine.stop, 10)


@async_test
async def test_the_engine_hears_how_late_answers_arrive(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[float] = []
    monkeypatch.setattr(Dispatcher, "delivered", lambda _, seconds: heard.append(seconds))
    clock = FakeClock(103.0)
    bridge = EngineBridge(asyncio.get_running_loop(), clock)
    bridge.connect(make_engine(bridge.deliver))
    left, waits = submission(Waiter(waits=False)), submission(Waiter(waits=True))
    bridge.deliver([(left, Completed((), 0, 0, 0, 0, 100.0))])
    bridge.deliver([(waits, Completed((), 0, 0, 0, 0, 101.0))])
    await eventually(lambda: bool(heard))
    assert heard == [2.0]
