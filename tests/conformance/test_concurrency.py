"""Requests that share a batch, a connection or an id never see one another."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.support.busy import busy_device
from tests.support.client import replies
from tests.support.hooklog import HookLog
from tests.support.messages import arrays, echo, floats, infer, tensor, text
from tests.support.target import Target

from reactant_core.testing import eventually_sync


def test_w10_equal_ids_at_the_same_time(target: Target) -> None:
    pending = [
        target.client.start_infer(
            echo(model="params", id="same", start=float(i), parameters={"number": i, f"only {i}": True})
        )
        for i in range(200)
    ]

    for i, reply in enumerate(replies(pending)):
        outputs = arrays(reply.ok())
        told = json.loads(outputs["told"][0])
        assert reply.ok().id == told["id"] == "same"
        assert told["parameters"] == {"number": ["int", i], f"only {i}": ["bool", True]}
        np.testing.assert_array_equal(outputs["Y"], floats(1, start=float(i)))
    target.assert_well()


def test_w4_zero_rows_beside_batches_of_two(target: Target) -> None:
    pending = []
    for i in range(40):
        pending.append(target.client.start_infer(echo(2, start=float(i))))
        pending.append(target.client.start_infer(echo(0)))
        pending.append(target.client.start_infer(infer("echo_bytes", tensor("text", text()))))
        pending.append(target.client.start_infer(infer("echo_bytes", tensor("text", text(b"%d" % i, b"\0")))))

    answers = [arrays(reply.ok()) for reply in replies(pending)]
    for i in range(40):
        two, none, no_text, two_texts = answers[4 * i : 4 * i + 4]
        np.testing.assert_array_equal(two["Y"], floats(2, start=float(i)))
        assert none["Y"].shape == (0, 4)
        assert no_text["echo"].shape == (0,)
        assert two_texts["echo"].tolist() == [b"%d" % i, b"\0"]
    target.assert_well()


def test_zero_rows_execute_nothing(target: Target) -> None:
    dispatches = target.page().value("worker_dispatch_total", model="echo")

    target.client.infer(echo(0)).ok()

    assert target.page().value("worker_dispatch_total", model="echo") == dispatches


@pytest.mark.slow
def test_queued_requests_are_put_together_and_taken_apart(
    target: Target, hook_log: HookLog, steps_of: int
) -> None:
    """Rows of 1, 2 and 3 in batches of at most 4, in the order they came; none is ever split."""
    before = target.page().value("worker_dispatch_total", model="echo")
    rows = [1, 1, 2, 3, 1, 1, 1, 2, 2, 3] * 2
    with busy_device(target, hook_log, steps_of):
        pending = [target.client.start_infer(echo(n, start=100.0 * i)) for i, n in enumerate(rows)]
        eventually_sync(lambda: target.depth("echo") == len(rows))

    for i, (n, reply) in enumerate(zip(rows, replies(pending), strict=True)):
        np.testing.assert_array_equal(arrays(reply.ok())["Y"], floats(n, start=100.0 * i))
    dispatches = target.page().value("worker_dispatch_total", model="echo") - before
    # Ten if every batch is as full as it can be; what the learned costs favour at times is a smaller one.
    assert dispatches < 0.8 * len(rows)


@pytest.mark.slow
def test_columns_are_put_together_along_the_last_axis(
    target: Target, hook_log: HookLog, steps_of: int
) -> None:
    shift = np.array([[1], [2], [3]], np.float32)
    inputs = [floats(3, n, start=10.0 * n) for n in (1, 2, 1, 3)]
    with busy_device(target, hook_log, steps_of):
        pending = [target.client.start_infer(infer("columns", tensor("X", array))) for array in inputs]
        eventually_sync(lambda: target.depth("columns") == len(inputs))

    for array, reply in zip(inputs, replies(pending), strict=True):
        np.testing.assert_array_equal(arrays(reply.ok())["Y"], array + shift)


@pytest.mark.slow
def test_models_and_shapes_of_all_kinds_at_once(target: Target) -> None:
    """Variants, models and batch sizes mixed: every answer is its own request's."""
    generator = np.random.default_rng(0)
    requests = []
    for _ in range(300):
        rows = int(generator.integers(1, 3))
        height, width = ((2, 3), (4, 4))[generator.integers(2)]
        image = generator.standard_normal((rows, height, width), np.float32)
        requests.append((infer("variants", tensor("image", image)), "total", image.sum((1, 2))))
        x = generator.standard_normal((rows, 4), np.float32)
        requests.append((infer("echo", tensor("X", x)), "Y", x))
        requests.append((infer("add2", tensor("A", x), tensor("B", x)), "SUM", x + x))

    pending = [target.client.start_infer(request) for request, _, _ in requests]

    for (_, name, expected), reply in zip(requests, replies(pending), strict=True):
        np.testing.assert_allclose(arrays(reply.ok())[name], expected, rtol=1e-5, atol=1e-5)
    target.assert_well()
