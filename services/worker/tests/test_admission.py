"""How many requests of a model wait, and who is turned away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast, final

import pytest

from reactant_core.errors import ModelUnavailable, ResourceExhausted
from reactant_core.testing import async_test, eventually
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.port import Engine, Submission
from reactant_worker.models.catalog import Catalog, Entry
from reactant_worker.pool import WorkPool
from reactant_worker.rpc.admission import Admission, QueueCount


@final
class FakeEngine:
    """Holds what it is given; `executing` says whether the device has something."""

    def __init__(self) -> None:
        self.held: list[Submission] = []
        self.executing = False

    def submit(self, submissions: list[Submission]) -> None:
        self.held += submissions

    def cancel(self, submission: Submission) -> bool:
        if submission not in self.held:
            return False
        self.held.remove(submission)
        return True

    def depth(self, model: str) -> int:
        return sum(submission.model == model for submission in self.held)

    def busy(self) -> bool:
        return self.executing


@pytest.fixture
def pool() -> Iterator[WorkPool]:
    made = WorkPool(2, "hook")
    yield made
    made.close()


def version(key: str, *, meta: bool = False) -> Any:
    """What the queue has to know of a version of the model `m`."""
    bundle = SimpleNamespace(manifest=SimpleNamespace(internal=False))
    return SimpleNamespace(key=key, name="m", bundle=bundle, meta=meta, calls=())


@final
class Queue:
    """A model with key `k` before an engine that executes nothing."""

    def __init__(self, pool: WorkPool, *, meta: bool = False) -> None:
        self.engine = FakeEngine()
        self.bridge = EngineBridge(asyncio.get_running_loop())
        self.bridge.connect(cast(Engine, self.engine))
        catalog = Catalog()
        self.entry: Entry = catalog.begin("m")
        self.model = version("k", meta=meta)
        catalog.ready(self.entry, self.model)
        self.catalog = catalog
        self.waiting_metas = 0
        self.count = QueueCount(
            engine=cast(Engine, self.engine),
            bridge=self.bridge,
            hook_pool=pool,
            metas=lambda _: self.waiting_metas,
        )
        self.admission = Admission(max_concurrent_requests=3, max_queue_depth=4, queued=self.count)
        self._pool = pool

    def submit(self) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.bridge.run(Submission("k", (), 1, None, 0.0)))

    def prepare(self, gate: threading.Event) -> asyncio.Task[Any]:
        """A request in `preprocess`, or waiting for a thread to be in it, until `gate` is set."""

        async def prepare() -> None:
            self.entry.preparing += 1
            try:
                await self._pool.run(gate.wait, 10, tag="k")
            finally:
                self.entry.preparing -= 1

        return asyncio.ensure_future(prepare())

    def admit(self) -> None:
        self.admission.check_queue(self.entry, self.model)

    def assert_full(self) -> None:
        with pytest.raises(ResourceExhausted) as refusal:
            self.admit()
        assert refusal.value.message == "model 'm': the queue is full (4 requests)"
        assert refusal.value.not_started


async def end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@async_test
async def test_the_bound_is_exact_from_the_first_moment_on(pool: WorkPool) -> None:
    queue = Queue(pool)
    tasks = []
    # All in one turn of the loop: the engine has heard of none of them yet.
    for expected in range(4):
        assert queue.count(queue.entry) == expected
        queue.admit()
        tasks.append(queue.submit())
        await asyncio.sleep(0)
    assert queue.count(queue.entry) == 4
    queue.assert_full()

    await end(tasks[0])
    assert queue.count(queue.entry) == 3
    queue.admit()
    await end(*tasks)
    assert queue.count(queue.entry) == 0


@async_test
async def test_who_waits_for_a_hook_thread_is_queued_and_who_has_one_is_not(pool: WorkPool) -> None:
    queue, gate = Queue(pool), threading.Event()
    tasks = [queue.prepare(gate) for _ in range(5)]
    await eventually(lambda: pool.running == 2)

    assert queue.count(queue.entry) == 3
    queue.engine.executing = True
    # The two in a hook are about to queue behind what executes.
    assert queue.count(queue.entry) == 5

    gate.set()
    await asyncio.gather(*tasks)
    assert queue.count(queue.entry) == 0


@async_test
async def test_cancelled_it_leaves_the_queue_of_the_hook_threads_at_once(pool: WorkPool) -> None:
    queue, gate = Queue(pool), threading.Event()
    tasks = [queue.prepare(gate) for _ in range(4)]
    await eventually(lambda: pool.running == 2)
    assert queue.count(queue.entry) == 2

    await end(*tasks[2:])
    assert queue.count(queue.entry) == 0
    gate.set()
    await asyncio.gather(*tasks[:2])


@async_test
async def test_those_that_began_with_an_earlier_version_count(pool: WorkPool) -> None:
    queue = Queue(pool)
    tasks = [queue.submit() for _ in range(3)]
    await eventually(lambda: queue.engine.depth("k") == 3)

    queue.catalog.ready(queue.entry, version("k2"))
    assert queue.count(queue.entry) == 3
    await end(*tasks)
    assert queue.count(queue.entry) == 0


@async_test
async def test_a_meta_that_waits_for_a_thread_is_queued(pool: WorkPool) -> None:
    queue = Queue(pool, meta=True)
    queue.waiting_metas = 3
    queue.admit()
    queue.waiting_metas = 4
    queue.assert_full()


@async_test
async def test_the_cap_and_the_end(pool: WorkPool) -> None:
    admission = Queue(pool).admission
    for _ in range(3):
        admission.enter()
    with pytest.raises(ResourceExhausted, match="3 requests are in flight"):
        admission.enter()
    admission.leave()
    admission.enter()

    admission.draining = True
    with pytest.raises(ModelUnavailable, match="draining") as refusal:
        admission.enter()
    assert refusal.value.not_started
    idle = asyncio.ensure_future(admission.wait_idle())
    for _ in range(3):
        assert not idle.done()
        admission.leave()
    await idle
    assert admission.in_flight == 0
