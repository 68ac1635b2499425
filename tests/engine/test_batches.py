"""Which requests share an execution, for how long a batch waits, and that each gets its own values."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.engine.settings import DELAY_SECONDS, FULL
from tests.support.busy import busy_device
from tests.support.client import Client, Pending, replies
from tests.support.hooklog import HookLog
from tests.support.messages import arrays, echo, infer, tensor
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import control_pb2, control_pb2_grpc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LARGEST = 4
REQUESTS = 20_000 if FULL else 1_500
AT_ONCE = 60
CONNECTIONS = 3
SHAPES = ((16, 64), (64, 16))


@pytest.fixture
def batching(fair: Target) -> Iterator[Target]:
    """The worker with models that batch; `capped` at two rows, `delayed` waits `DELAY_SECONDS` for four."""
    names = ("steady", "capped", "delayed", "images")
    for name in names:
        fair.client.load(name).ok()
    yield fair
    for name in names:
        fair.client.unload(name).ok()


def dispatches(target: Target, model: str) -> float:
    return target.page().value("worker_dispatch_total", model=model)


def send(target: Target, model: str, rows: int = 1, **parts: Any) -> Pending:
    return target.client.start_infer(echo(rows, model=model, **parts))


def test_max_batch_size(batching: Target, hooks_noted: HookLog, steps_of: int) -> None:
    """Six single rows fit in two executions of four; at most two at a time make three."""
    before = {model: dispatches(batching, model) for model in ("steady", "capped")}
    with busy_device(batching, hooks_noted, steps_of):
        pending = [send(batching, model) for _ in range(6) for model in before]
        eventually_sync(lambda: all(batching.depth(model) == 6 for model in before), 0.7)
    for reply in replies(pending):
        reply.ok()

    assert {model: dispatches(batching, model) - before[model] for model in before} == {
        "steady": 2,
        "capped": 3,
    }
    # One that is larger by itself is served, alone.
    send(batching, "capped", 3).reply().ok()
    assert dispatches(batching, "capped") - before["capped"] == 4
    stub = control_pb2_grpc.ControlServiceStub(batching.client.channel)
    status = stub.ModelControlStatus(control_pb2.ModelControlStatusRequest(), timeout=5)
    assert {one.name: one.max_batch_size for one in status.models if one.name in before} == {
        "steady": LARGEST,
        "capped": 2,
    }


def test_a_batch_waits_to_be_filled(batching: Target) -> None:
    before, begin = dispatches(batching, "delayed"), time.monotonic()
    pending = [send(batching, "delayed") for _ in range(3)]
    # The device is free meanwhile, for others.
    others = [send(batching, "steady").reply() for _ in range(3)]
    assert not any(one.done() for one in pending)
    for reply in replies(pending):
        reply.ok()
    took = time.monotonic() - begin

    assert dispatches(batching, "delayed") - before == 1
    assert took > 0.9 * DELAY_SECONDS
    for reply in others:
        reply.ok()


def test_a_full_batch_waits_for_nothing(batching: Target) -> None:
    before = dispatches(batching, "delayed")

    outcomes = replies([send(batching, "delayed") for _ in range(LARGEST)])

    assert all(reply.code is grpc.StatusCode.OK for reply in outcomes)
    assert dispatches(batching, "delayed") - before == 1
    assert max(reply.seconds for reply in outcomes) < 0.9 * DELAY_SECONDS


def test_a_deadline_ends_the_wait(batching: Target) -> None:
    """A batch runs when its most urgent request has to, and takes the others along."""
    before = dispatches(batching, "delayed")
    patient = send(batching, "delayed")
    urgent = send(batching, "delayed", parameters={"timeout": int(DELAY_SECONDS / 2 * 1e6)})

    outcomes = replies([patient, urgent])

    assert all(reply.code is grpc.StatusCode.OK for reply in outcomes)
    assert max(reply.seconds for reply in outcomes) < 0.9 * DELAY_SECONDS
    assert dispatches(batching, "delayed") - before == 1


def test_one_that_is_given_up_while_its_batch_waits(batching: Target) -> None:
    """It fills no place, and is not executed."""
    before = batching.page().value("worker_rows_served_total", model="delayed")
    left = send(batching, "delayed", 3)
    eventually_sync(lambda: batching.depth("delayed") == 1, DELAY_SECONDS / 2)
    left.cancel()
    assert left.reply().code is grpc.StatusCode.CANCELLED
    eventually_sync(lambda: batching.depth("delayed") == 0, DELAY_SECONDS / 2)
    kept = send(batching, "delayed")

    assert kept.reply().seconds > 0.9 * DELAY_SECONDS
    assert batching.page().value("worker_rows_served_total", model="delayed") - before == 1


def image(chance: random.Random, number: int) -> NDArray[np.float32]:
    """Rows of which each value tells the request, the row and the place."""
    rows, shape = chance.choice((1, 1, 1, 2, 2, 3, LARGEST)), SHAPES[number // 6 % 2]
    size = rows * shape[0] * shape[1]
    return (np.arange(size, dtype=np.float32) + np.float32(number * 4096 % 8_000_000)).reshape(rows, *shape)


def test_every_answer_is_its_own(batching: Target) -> None:
    """Two shapes and all row counts mixed, from several connections, some given up on the way."""
    chance = random.Random(8)
    wrong: list[str] = []
    outcomes: dict[grpc.StatusCode, int] = {}
    before = batching.page()
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(batching.process.address)) for _ in range(CONNECTIONS)]
        for start in range(0, REQUESTS, AT_ONCE):
            sent: list[tuple[NDArray[np.float32], Pending]] = []
            for number in range(start, start + AT_ONCE):
                array = image(chance, number)
                request = infer("images", tensor("image", array))
                sent.append((array, clients[number % CONNECTIONS].start_infer(request)))
            for _, one in chance.sample(sent, AT_ONCE // 12):
                one.cancel()
            for array, one in sent:
                reply = one.reply()
                outcomes[reply.code] = outcomes.get(reply.code, 0) + 1
                if reply.code is not grpc.StatusCode.OK:
                    continue
                answer = arrays(reply.response)
                if not np.array_equal(answer["copy"], array):
                    wrong.append(f"sent {array.shape} from {array.flat[0]}, got {answer['copy'].shape}")
                elif not np.allclose(answer["total"], array.sum((1, 2), dtype=np.float64), rtol=1e-4):
                    wrong.append(f"total {answer['total']} of {array.shape}")
    after = batching.page()

    assert not wrong, wrong[:5]
    assert outcomes.keys() <= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}
    # Otherwise nothing was put together, and nothing was shown.
    executed, executions = (
        after.value(name, model="images") - before.value(name, model="images")
        for name in ("worker_requests_served_total", "worker_dispatch_total")
    )
    print(f"{outcomes}, {executed:.0f} executed in {executions:.0f} executions")
    assert executed > 1.1 * executions
