"""Every outcome is counted once, under the code the client sees, and shed only where it was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast, final

import pytest
from prometheus_client import CollectorRegistry

from reactant_core.clock import SYSTEM_CLOCK
from reactant_core.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    ModelNotFound,
    ModelUnavailable,
    ResourceExhausted,
    ServingError,
)
from reactant_core.testing import async_test
from reactant_proto import inference_pb2 as pb
from reactant_worker.metrics import WorkerMetrics
from reactant_worker.models.catalog import Catalog
from reactant_worker.rpc.counted import CountedInfer

FULL = ResourceExhausted("the queue is full", not_started=True)
TOO_LARGE = ResourceExhausted("the response has 9 bytes, the limit is 8")


@final
class Counted:
    """A `CountedInfer` whose next outcome is given, and what it counted."""

    def __init__(self, *, internal: bool = False) -> None:
        self.registry = CollectorRegistry()
        self.catalog = Catalog()
        manifest = SimpleNamespace(internal=internal)
        self.entry = self.catalog.begin("m")
        self.catalog.ready(
            self.entry, cast(Any, SimpleNamespace(calls=(), bundle=SimpleNamespace(manifest=manifest)))
        )
        self._outcome: BaseException | None = None
        self._counted = CountedInfer(
            infer=cast(Any, self),
            catalog=self.catalog,
            metrics=WorkerMetrics(self.registry),
            clock=SYSTEM_CLOCK,
        )

    async def infer(self, request: pb.ModelInferRequest, remaining: float | None) -> pb.ModelInferResponse:
        if self._outcome is not None:
            raise self._outcome
        return pb.ModelInferResponse()

    async def answer(
        self, outcome: BaseException | None, *, model: str = "m", remaining: float | None = None
    ) -> None:
        self._outcome = outcome
        request = pb.ModelInferRequest(model_name=model, id="r7")
        await self._counted.answer(request, lambda: remaining)

    def counters(self) -> dict[tuple[str, ...], float]:
        """Requests by (model, code) and sheds by (reason,), those that are not 0."""
        samples = [sample for family in self.registry.collect() for sample in family.samples]
        return {
            tuple(sample.labels.values()): sample.value
            for sample in samples
            if sample.name in ("worker_requests_total", "worker_requests_shed_total")
        }


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (FULL, "full"),
        (TOO_LARGE, None),
        (ModelUnavailable("loading", not_started=True), "unavailable"),
        (DeadlineExceeded("late"), "deadline"),
        (InvalidArgument("wrong"), None),
        (InternalError("broken"), None),
    ],
)
@async_test
async def test_a_failure_is_counted_once_and_shed_for_its_reason(
    failure: ServingError, reason: str | None
) -> None:
    counted = Counted()
    with pytest.raises(type(failure)):
        await counted.answer(failure)

    shed = {} if reason is None else {(reason,): 1.0}
    assert counted.counters() == {("m", failure.code.name): 1.0} | shed
    assert (counted.entry.counters.success.count, counted.entry.counters.fail.count) == (0, 1)


@async_test
async def test_an_error_nobody_foresaw_is_internal() -> None:
    counted = Counted()
    with pytest.raises(InternalError, match="inference failed: ZeroDivisionError"):
        await counted.answer(ZeroDivisionError())

    assert counted.counters() == {("m", "INTERNAL"): 1.0}


@pytest.mark.parametrize(
    ("remaining", "code", "reason"),
    [
        (None, "CANCELLED", "cancelled"),
        (5.0, "CANCELLED", "cancelled"),
        (0.01, "DEADLINE_EXCEEDED", "deadline"),
    ],
)
@async_test
async def test_a_call_that_the_transport_ended(remaining: float | None, code: str, reason: str) -> None:
    counted = Counted()
    with pytest.raises(asyncio.CancelledError):
        await counted.answer(asyncio.CancelledError(), remaining=remaining)

    assert counted.counters() == {("m", code): 1.0, (reason,): 1.0}


@pytest.mark.parametrize(("model", "internal"), [("nobody", False), ("m", True)])
@async_test
async def test_a_name_that_clients_do_not_have_is_no_series(model: str, internal: bool) -> None:
    counted = Counted(internal=internal)
    with pytest.raises(ModelNotFound):
        await counted.answer(ModelNotFound("not found", not_started=True), model=model)

    assert counted.counters() == {("", "NOT_FOUND"): 1.0}
    assert counted.entry.counters.fail.count == 0


@async_test
async def test_the_sum_of_all_is_what_came() -> None:
    counted = Counted()
    outcomes = [None, FULL, TOO_LARGE, None, DeadlineExceeded("late"), InvalidArgument("wrong"), ValueError()]
    for outcome in outcomes:
        with suppress(ServingError):
            await counted.answer(outcome)

    by_code = {labels[1]: count for labels, count in counted.counters().items() if len(labels) == 2}
    assert by_code == {
        "OK": 2,
        "RESOURCE_EXHAUSTED": 2,
        "DEADLINE_EXCEEDED": 1,
        "INVALID_ARGUMENT": 1,
        "INTERNAL": 1,
    }
    assert sum(by_code.values()) == len(outcomes)
    # What succeeded is counted by who answers; the rest is here.
    assert counted.entry.counters.fail.count == len(outcomes) - 2


@pytest.fixture
def levels() -> Iterator[logging.Logger]:
    logger = logging.getLogger("reactant_worker.rpc.counted")
    before = logger.level
    yield logger
    logger.setLevel(before)


@pytest.mark.parametrize(("level", "lines"), [(logging.DEBUG, 1), (logging.INFO, 0)])
@async_test
async def test_each_answer_is_a_line_at_debug(
    levels: logging.Logger, caplog: pytest.LogCaptureFixture, level: int, lines: int
) -> None:
    levels.setLevel(level)
    await Counted().answer(None)

    told = [record.getMessage() for record in caplog.records if "answered" in record.getMessage()]
    assert len(told) == lines
    for line in told:
        assert all(part in line for part in ("'m'", "'r7'", "'OK'", "seconds"))
