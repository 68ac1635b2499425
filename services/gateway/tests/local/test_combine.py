"""Answers of several workers as one."""

from __future__ import annotations

from typing import Any

import pytest

from reactant_core.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    ModelNotFound,
    ModelUnavailable,
    ServingError,
)
from reactant_gateway.local.combine import merge_index, sum_statistics
from reactant_gateway.local.fanout import combined, most_telling
from reactant_proto import inference_pb2 as pb


def index(**models: tuple[str, str]) -> pb.RepositoryIndexResponse:
    response = pb.RepositoryIndexResponse()
    for name, (state, reason) in models.items():
        response.models.add(name=name, version="1", state=state, reason=reason)
    return response


def merged(*workers: dict[str, tuple[str, str]], silent: Any = None, ready_only: bool = False) -> Any:
    answered = {f"w{i}": index(**models) for i, models in enumerate(workers)}
    response = merge_index(answered, silent or {}, ready_only=ready_only)
    return {model.name: (model.state, model.reason) for model in response.models}


READY, LOADING, BROKEN = ("READY", ""), ("LOADING", ""), ("UNAVAILABLE", "broken")


@pytest.mark.parametrize("row", [READY, LOADING, BROKEN, ("READY", "the last reload failed: x")])
def test_workers_that_agree_give_their_own_row(row: tuple[str, str]) -> None:
    assert merged({"m": row}) == merged({"m": row}, {"m": row}) == {"m": row}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([READY, LOADING], ("READY", "w1: LOADING")),
        ([BROKEN, READY], ("READY", "w0: UNAVAILABLE: broken")),
        ([BROKEN, LOADING], ("LOADING", "w0: UNAVAILABLE: broken")),
        ([("UNLOADING", ""), BROKEN], ("UNLOADING", "w1: UNAVAILABLE: broken")),
        ([BROKEN, ("UNAVAILABLE", "x")], ("UNAVAILABLE", "w0: UNAVAILABLE: broken; w1: UNAVAILABLE: x")),
        ([READY, ("odd", "")], ("READY", "w1: odd")),
    ],
)
def test_the_reason_says_who_differs(rows: list[tuple[str, str]], expected: tuple[str, str]) -> None:
    assert merged(*({"m": row} for row in rows)) == {"m": expected}


def test_models_that_only_some_have() -> None:
    assert merged({"b": READY, "a": READY}, {"b": READY}) == {
        "a": ("READY", "w1: UNAVAILABLE: no such model"),
        "b": READY,
    }


def test_models_of_workers_that_do_not_answer() -> None:
    assert merged({"a": READY}, silent={"w9": ["a", "b"]}) == {
        "a": ("READY", "w9: UNAVAILABLE: the worker does not answer"),
        "b": ("UNAVAILABLE", "w0: UNAVAILABLE: no such model; w9: UNAVAILABLE: the worker does not answer"),
    }


def test_only_ready_models() -> None:
    assert merged({"a": READY, "b": LOADING}, {"b": BROKEN}, ready_only=True).keys() == {"a"}


def statistics(count: int, *batches: int, last: int = 0) -> pb.ModelStatisticsResponse:
    response = pb.ModelStatisticsResponse()
    model = response.model_stats.add(
        name="m", version="1", last_inference=last, inference_count=count, execution_count=count
    )
    for name in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
        duration = getattr(model.inference_stats, name)
        duration.count, duration.ns = count, 10 * count
    for size in batches:
        batch = model.batch_stats.add(batch_size=size)
        batch.compute_infer.count, batch.compute_infer.ns = count, 10 * count
    model.memory_usage.add(type="GPU", id=0, byte_size=count)
    model.response_stats["0"].success.count = count
    return response


def test_one_workers_statistics_stay_as_they_are() -> None:
    assert sum_statistics([statistics(3, 8, 2, last=5)]) == statistics(3, 8, 2, last=5)


def test_statistics_are_summed() -> None:
    (total,) = sum_statistics([statistics(3, 2, last=7), statistics(4, 1, 2, last=9)]).model_stats

    assert (total.name, total.inference_count, total.execution_count, total.last_inference) == ("m", 7, 7, 9)
    for name in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"):
        duration = getattr(total.inference_stats, name)
        assert (duration.count, duration.ns) == (7, 70), name
    assert not total.inference_stats.HasField("cache_hit")
    assert [(b.batch_size, b.compute_infer.count, b.compute_infer.ns) for b in total.batch_stats] == [
        (1, 4, 40),
        (2, 7, 70),
    ]
    assert [(usage.type, usage.byte_size) for usage in total.memory_usage] == [("GPU", 7)]
    assert total.response_stats["0"].success.count == 7


def test_statistics_keep_models_apart() -> None:
    first, second = statistics(1), statistics(2)
    second.model_stats[0].name = "n"
    total = sum_statistics([first, second])
    assert [(model.name, model.inference_count) for model in total.model_stats] == [("m", 1), ("n", 2)]


def test_an_error_that_all_give_stays_as_it_is() -> None:
    errors: dict[str, ServingError] = {f"w{i}": ModelUnavailable("not explicit") for i in range(2)}
    assert combined(errors, 2).message == "not explicit"


def test_errors_that_differ_name_the_workers() -> None:
    error = combined({"w1": FailedPrecondition("no"), "w2": ModelUnavailable("gone")}, 3)
    assert isinstance(error, FailedPrecondition)
    assert error.message == "2 of 3 workers failed: w1: no; w2: gone"
    assert combined({"w1": FailedPrecondition("no")}, 2).message == "1 of 2 workers failed: w1: no"


def test_not_found_counts_only_when_all_say_it() -> None:
    missing, slow = ModelNotFound("a"), DeadlineExceeded("b")
    loading, other = ModelUnavailable("c", not_started=True), FailedPrecondition("d")
    assert most_telling([missing, slow]) is slow
    assert most_telling([slow, loading]) is loading
    assert most_telling([loading, other, missing]) is other
    assert most_telling([missing, ModelNotFound("e")]) is missing
