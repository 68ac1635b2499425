"""ModelInfer without a coroutine: what is taken, how it ends, and that everything is counted once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast, final

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from services.worker.tests.direct import Engine, Front, request, serving, version

from reactant_core.errors import InternalError, ModelUnavailable, trailing_metadata
from reactant_core.kserve.stream import STREAM_KEY
from reactant_core.rpc.direct import DirectCall
from reactant_core.testing import FakeClock, async_test, eventually
from reactant_proto import inference_pb2 as pb
from reactant_worker.engine import port
from reactant_worker.engine.bridge import EngineBridge
from reactant_worker.engine.port import Completed, Outcome, Submission
from reactant_worker.metrics import WorkerMetrics
from reactant_worker.pool import WorkPool
from reactant_worker.rpc.admission import Admission, QueueCount
from reactant_worker.rpc.counted import CountedInfer
from reactant_worker.rpc.direct import DirectInfer

LIMIT_BYTES = 400


@final
class Worker:
    """Everything between a transport and an engine that a request of `m` meets."""

    def __init__(self, *, cap: int = 0, depth: int = 100) -> None:
        self.front, self.engine, self.clock = Front(), Engine(), FakeClock(50.0)
        self.model = version()
        catalog, self.entry = serving(self.model)
        self.bridge = EngineBridge(asyncio.get_running_loop(), self.clock)
        engine = cast(port.Engine, self.engine)
        self.bridge.connect(engine)
        self.registry = CollectorRegistry()
        metrics = WorkerMetrics(self.registry)
        queued = QueueCount(
            engine=engine, bridge=self.bridge, hook_pool=WorkPool(1, "none"), metas=lambda _: 0
        )
        self.admission = Admission(max_concurrent_requests=cap, max_queue_depth=depth, queued=queued)
        self._direct = DirectInfer(
            catalog=catalog,
            admission=self.admission,
            bridge=self.bridge,
            counted=CountedInfer(infer=cast(Any, None), catalog=catalog, metrics=metrics, clock=self.clock),
            metrics=metrics,
            clock=self.clock,
            max_response_bytes=LIMIT_BYTES,
        )
        self.open: dict[int, DirectCall] = {}

    def offer(
        self,
        *messages: pb.ModelInferRequest,
        seconds: float | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Calls 0, 1, … that come together."""
        details = (tuple(metadata.items()), "peer", seconds)
        self._direct(
            [
                DirectCall(self.front, self.open, number, message.SerializeToString(), details)
                for number, message in enumerate(messages)
            ]
        )

    async def submitted(self, count: int) -> list[Submission]:
        await asyncio.sleep(0)
        assert len(self.engine.held) == count
        return list(self.engine.held)

    async def deliver(self, submission: Submission, outcome: Outcome) -> None:
        if submission in self.engine.held:
            self.engine.held.remove(submission)
        self.bridge.deliver([(submission, outcome)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def counters(self) -> dict[tuple[str, ...], float]:
        """Requests by (model, code) and sheds by (reason,), those that are not 0."""
        samples = [sample for family in self.registry.collect() for sample in family.samples]
        return {
            tuple(sample.labels.values()): sample.value
            for sample in samples
            if sample.name in ("worker_requests_total", "worker_requests_shed_total")
        }

    def assert_nothing_is_left(self) -> None:
        assert self.admission.in_flight == 0
        assert self.entry._users == {}
        assert self.open == {}
        assert self.bridge.buffered("k") == 0


def completed(rows: int = 2) -> Completed:
    return Completed((np.full((rows, 2), 7, np.float32),), 0.5, 0.1, 0.2, 0.1, 49.0)


@async_test
async def test_requests_that_came_together_are_submitted_together_and_each_gets_its_own_answer() -> None:
    worker = Worker()
    worker.offer(*[request(rows, request_id=f"r{rows}") for rows in (1, 2, 3)])
    assert worker.admission.in_flight == 3
    held = await worker.submitted(3)
    assert [(s.model, s.rows, s.arrived, s.deadline) for s in held] == [
        ("k", n, 50.0, None) for n in (1, 2, 3)
    ]
    assert [s.inputs[1].tolist() for s in held[:2]] == [[[0, 1]], [[0, 1], [2, 3]]]
    worker.clock.advance(1.0)
    for submission in reversed(held):
        await worker.deliver(submission, completed(submission.rows))
    for number, rows in enumerate((1, 2, 3)):
        answer = worker.front.answers[number]
        assert (answer.model_name, answer.model_version, answer.id) == ("m", "1", f"r{rows}")
        assert [(o.name, o.datatype, [*o.shape]) for o in answer.outputs] == [("y", "FP32", [rows, 2])]
        assert answer.raw_output_contents == [np.full((rows, 2), 7, np.float32).tobytes()]
    worker.assert_nothing_is_left()
    assert worker.counters() == {("m", "OK"): 3.0}
    counters = worker.entry.counters
    assert (counters.success.count, counters.success.seconds, counters.rows) == (3, 3.0, 6)
    assert (counters.queue.seconds, counters.compute_infer.count) == (1.5, 3)


@async_test
async def test_the_engines_refusal_names_the_model_and_says_that_nothing_was_started() -> None:
    worker = Worker()
    worker.offer(request())
    (submission,) = await worker.submitted(1)
    await worker.deliver(submission, ModelUnavailable("the model was unloaded", not_started=True))
    error = ModelUnavailable("model 'm': the model was unloaded", not_started=True)
    assert worker.front.failures == {0: (14, error.message, list(trailing_metadata(error)))}
    worker.assert_nothing_is_left()
    assert worker.counters() == {("m", "UNAVAILABLE"): 1.0, ("unavailable",): 1.0}
    assert worker.entry.counters.fail.count == 1


@pytest.mark.parametrize("parameter", [False, True])
@async_test
async def test_a_deadline_that_passes_ends_it_wherever_it_waits(parameter: bool) -> None:
    worker = Worker()
    message = request()
    if parameter:
        message.parameters["timeout"].int64_param = 20_000
    worker.offer(message, seconds=5.0 if parameter else 0.02)
    (submission,) = await worker.submitted(1)
    assert submission.deadline == pytest.approx(50.02)
    await eventually(lambda: bool(worker.front.failures))
    assert worker.front.failures == {0: (4, "model 'm': the deadline passed", [])}
    assert worker.engine.held == []
    await worker.deliver(submission, completed())  # it was on the device
    assert not worker.front.answers
    worker.assert_nothing_is_left()
    assert worker.counters() == {("m", "DEADLINE_EXCEEDED"): 1.0, ("deadline",): 1.0}


@pytest.mark.parametrize(
    ("seconds", "code", "reason"),
    [
        (None, "CANCELLED", "cancelled"),
        (60.0, "CANCELLED", "cancelled"),
        (9.0, "DEADLINE_EXCEEDED", "deadline"),
    ],
)
@pytest.mark.parametrize("submitted", [False, True])
@async_test
async def test_a_call_that_the_transport_ended(
    seconds: float | None, code: str, reason: str, submitted: bool
) -> None:
    worker = Worker()
    worker.offer(request(), request(), seconds=seconds)
    if submitted:
        await worker.submitted(2)
    worker.clock.advance(9.0)
    worker.open[0].abandon()
    await worker.submitted(1)
    await worker.deliver(worker.engine.held[0], completed())
    assert [*worker.front.answers] == [1]
    worker.assert_nothing_is_left()
    assert worker.counters() == {("m", code): 1.0, (reason,): 1.0, ("m", "OK"): 1.0}


@async_test
async def test_a_response_over_the_limit_is_refused_and_not_shed() -> None:
    worker = Worker()
    worker.offer(request())
    (submission,) = await worker.submitted(1)
    await worker.deliver(submission, completed(rows=100))
    ((code, message, trailers),) = worker.front.failures.values()
    assert (code, trailers) == (8, [])
    assert f"bytes, the limit is {LIMIT_BYTES}" in message
    worker.assert_nothing_is_left()
    assert worker.counters() == {("m", "RESOURCE_EXHAUSTED"): 1.0}
    assert worker.entry.counters.success.count == 0


@async_test
async def test_an_error_nobody_foresaw_ends_one_request_and_no_other() -> None:
    worker = Worker()
    worker.offer(request(), request())
    first, second = await worker.submitted(2)
    worker.bridge.deliver([(first, Completed((), 0, 0, 0, 0, 49.0)), (second, completed())])
    await eventually(lambda: bool(worker.front.answers))
    assert worker.front.failures == {0: (13, "model 'm': inference failed: IndexError", [])}
    assert [*worker.front.answers] == [1]
    assert worker.counters() == {("m", InternalError.code.name): 1.0, ("m", "OK"): 1.0}


@async_test
async def test_what_cannot_be_admitted_is_left_as_it_was() -> None:
    full, capped, draining, late, streamed = Worker(depth=2), Worker(cap=2), Worker(), Worker(), Worker()
    full.offer(*[request()] * 5)
    assert [*full.open] == [0, 1]
    capped.offer(*[request()] * 5)
    assert [*capped.open] == [0, 1]
    draining.admission.draining = True
    draining.offer(request())
    late.offer(request(), seconds=0.0)
    streamed.offer(request(), metadata={STREAM_KEY: "1"})
    for worker in (draining, late, streamed):
        worker.assert_nothing_is_left()
        assert worker.counters() == {}
    for worker in (full, capped):
        assert worker.counters() == {}
        for submission in await worker.submitted(2):
            await worker.deliver(submission, completed())
        worker.assert_nothing_is_left()
        worker.offer(request())
        assert [*worker.open] == [0]
