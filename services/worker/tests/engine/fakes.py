"""A device whose executions end when the test says so, and somebody who takes outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.testing import eventually_sync
from reactant_policy.scheduling.disciplines import make_discipline
from reactant_policy.scheduling.scheduler import ModelTerms, Scheduler
from reactant_worker.engine.dispatcher import Dispatcher
from reactant_worker.engine.port import Arrays, Completed, Outcome, Submission

MODEL = "m"
TERMS = ModelTerms((1, 4, 8), coalesces=True, max_batch_size=8)
PATIENCE_SECONDS = 10


@final
class Device:
    """A `Runnable` that doubles its input, and knows each batch by the rows of its requests.

    Attributes:
        staged, launched, discarded, ended: batches, in the order in which it happened.
        threads: names of the threads that launched.
        most: batches that were between launch and end at once.
        queues, runs_in_launch: what batches say of themselves; one that runs in its launch waits there.
        failing: "stage", "launch", "wait" or "outputs" raises `error`.
        short: answers of the first request of a batch only.
    """

    def __init__(self) -> None:
        self.staged: list[list[int]] = []
        self.launched: list[list[int]] = []
        self.discarded: list[list[int]] = []
        self.ended: list[list[int]] = []
        self.threads: list[str] = []
        self.most = 0
        self.queues = False
        self.runs_in_launch = False
        self.failing = ""
        self.error: BaseException = RuntimeError("device on fire")
        self.short = False
        self._on_device = 0
        self._gate = threading.Semaphore(0)
        self._lock = threading.Lock()

    def let(self, executions: int = 1) -> None:
        """Lets as many executions end."""
        self._gate.release(executions)

    def open(self) -> None:
        """Lets all end from now on."""
        self._gate.release(100_000)

    def stage(
        self, size: int, variant: int | None, requests: Sequence[Arrays], rows: Sequence[int]
    ) -> DeviceBatch:
        self.fail("stage")
        self.staged.append(list(rows))
        return DeviceBatch(self, requests, list(rows))

    def fail(self, where: str) -> None:
        if self.failing == where:
            raise self.error

    def compute(self) -> None:
        assert self._gate.acquire(timeout=PATIENCE_SECONDS)

    def count(self, change: int) -> None:
        with self._lock:
            self._on_device += change
            self.most = max(self.most, self._on_device)


@final
class DeviceBatch:
    """A `Batch` of a `Device`."""

    def __init__(self, device: Device, requests: Sequence[Arrays], rows: list[int]) -> None:
        self._device = device
        self._requests = requests
        self._rows = rows

    @property
    def queues(self) -> bool:
        return self._device.queues

    @property
    def runs_in_launch(self) -> bool:
        return self._device.runs_in_launch

    def launch(self) -> None:
        self._device.fail("launch")
        self._device.threads.append(threading.current_thread().name)
        self._device.launched.append(self._rows)
        self._device.count(1)
        if self.runs_in_launch:
            self._device.compute()

    def wait(self) -> None:
        if not self.runs_in_launch:
            self._device.compute()
        self._device.count(-1)
        self._device.fail("wait")
        self._device.ended.append(self._rows)

    def outputs(self) -> list[Arrays]:
        self._device.fail("outputs")
        answers: list[Arrays] = [(inputs[0] * 2,) for inputs in self._requests]
        return answers[:1] if self._device.short else answers

    def discard(self) -> None:
        self._device.discarded.append(self._rows)


@final
class Recorder:
    """Takes outcomes by the tags of their requests, in the order in which they came."""

    def __init__(self) -> None:
        self.outcomes: dict[Any, Outcome] = {}

    def __call__(self, outcomes: Sequence[tuple[Submission, Outcome]]) -> None:
        for submission, outcome in outcomes:
            assert submission.tag not in self.outcomes, "an outcome came twice"
            self.outcomes[submission.tag] = outcome

    def wait(self, *tags: Any) -> None:
        """Until every one of these has its outcome."""
        eventually_sync(lambda: all(tag in self.outcomes for tag in tags), what=f"outcomes of {tags}")

    def completed(self, tag: Any) -> Completed:
        """The answer to a request, once it is there."""
        self.wait(tag)
        outcome = self.outcomes[tag]
        assert isinstance(outcome, Completed), outcome
        return outcome


def make_engine(
    deliver: Callable[[Sequence[tuple[Submission, Outcome]]], None],
    *,
    clock: Clock = SYSTEM_CLOCK,
    scheduler: Scheduler | None = None,
    depth: int = 2,
) -> Dispatcher:
    """An engine under `fifo`, or with a scheduler of the test's own."""
    return Dispatcher(scheduler or Scheduler(make_discipline("fifo")), clock, deliver, depth=depth)


def submission(
    tag: Any,
    rows: int = 1,
    *,
    model: str = MODEL,
    deadline: float | None = None,
    committed: bool = False,
    arrived: float | None = None,
) -> Submission:
    """A request whose every number is its row count."""
    at = SYSTEM_CLOCK.monotonic() if arrived is None else arrived
    return Submission(model, (np.full((rows, 2), float(rows)),), rows, None, at, deadline, tag, committed)
