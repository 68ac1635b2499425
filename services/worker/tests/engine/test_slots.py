"""Nobody gets another's answer, however much is in flight.

REACTANT_TEST_FULL=1 makes ten times as many dispatches.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from services.worker.tests.engine.fakes import make_engine
from services.worker.tests.engine.programs import program_set, spec

from reactant_core.clock import SYSTEM_CLOCK
from reactant_policy.scheduling.scheduler import ModelTerms
from reactant_worker.engine.port import Completed, Outcome, Submission

DISPATCHES = 20_000 if os.environ.get("REACTANT_TEST_FULL") == "1" else 2_000
WIDTH = 64
SIZES = (1, 4, 8)
AT_ONCE = 24


def reads_late(x: Any) -> tuple[Any]:
    """Gives `x` back, and reads it after some work, so that whoever overwrites it meanwhile is seen."""
    square = jnp.ones((96, 96), jnp.float32) * x[0, 0]
    for _ in range(6):
        square = jnp.tanh(square @ square)
    return (x + square[:1, :1] * 0,)


@final
class Clients:
    """Keep `AT_ONCE` requests in the engine; every row of every request is a number of its own."""

    def __init__(self) -> None:
        self.wrong: list[object] = []
        self.answers = 0
        self._random = random.Random(4)
        self._serial = 0
        self._more = threading.Semaphore(AT_ONCE)

    def request(self) -> Submission:
        assert self._more.acquire(timeout=30)
        rows = self._random.choice((1, 1, 1, 2, 3, 4))
        first = self._serial
        self._serial += rows
        inputs = np.repeat(np.arange(first, self._serial, dtype=np.float32)[:, None], WIDTH, axis=1)
        return Submission("m", (inputs,), rows, None, SYSTEM_CLOCK.monotonic(), tag=inputs.copy())

    def __call__(self, outcomes: Sequence[tuple[Submission, Outcome]]) -> None:
        for submission, outcome in outcomes:
            if not isinstance(outcome, Completed):
                self.wrong.append(outcome)
            elif not np.array_equal(outcome.outputs[0], submission.tag):
                self.wrong.append((submission.tag[:, 0], outcome.outputs[0]))
            self.answers += 1
            self._more.release()


def test_every_answer_is_of_its_own_request() -> None:
    model = program_set(reads_late, [spec("x", (-1, WIDTH))], [spec("y", (-1, WIDTH))], SIZES)
    clients = Clients()
    engine = make_engine(clients)
    engine.attach("m", model, ModelTerms(SIZES, coalesces=True, max_batch_size=SIZES[-1]))
    engine.start()
    submitted = 0
    while engine.statistics("m").dispatches < DISPATCHES and not clients.wrong:
        engine.submit([clients.request()])
        submitted += 1
    while clients.answers < submitted:
        assert clients._more.acquire(timeout=30)
    assert engine.stop(10)
    assert not clients.wrong
