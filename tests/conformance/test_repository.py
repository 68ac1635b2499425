"""RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from tests.support.busy import busy_hooks, unique
from tests.support.hooklog import HookLog
from tests.support.messages import arrays, echo, floats, slow_hook
from tests.support.settings import FEW_HOOK_THREADS, ODD_NAMES, SHARED_MODELS
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb


def assert_echoes(target: Target, model: str) -> None:
    outputs = arrays(target.client.infer(echo(2, model=model)).ok())
    np.testing.assert_array_equal(outputs["Y"], floats(2, start=1.0))


def test_the_index_lists_every_bundle(target: Target) -> None:
    assert target.client.index() == dict.fromkeys(SHARED_MODELS, ("READY", ""))
    answer = target.client.call("RepositoryIndex", pb.RepositoryIndexRequest()).ok()
    assert [model.version for model in answer.models] == ["1"] * len(SHARED_MODELS)


@pytest.mark.parametrize("rpc", ["load", "unload"])
def test_only_explicit_mode_loads_by_request(target: Target, rpc: str) -> None:
    reply = getattr(target.client, rpc)("echo")

    assert reply.code is grpc.StatusCode.UNAVAILABLE
    assert "explicit" in reply.details
    target.assert_well()


@pytest.fixture
def fresh(explicit: Target) -> Iterator[Target]:
    """The explicit worker with `echo` alone, before and after."""
    yield explicit
    for model in explicit.client.index(ready=True):
        if model != "echo":
            explicit.client.unload(model).ok()


def test_load_and_unload(fresh: Target) -> None:
    client = fresh.client
    assert "add2" not in client.index(ready=True)
    assert client.index()["add2"][0] == "UNAVAILABLE"

    client.load("add2").ok()

    assert client.index()["add2"] == ("READY", "")
    assert client.index(ready=True).keys() == {"add2", "echo"}
    assert client.ready("add2")

    client.unload("add2").ok()

    assert client.index(ready=True).keys() == {"echo"}
    # Unload returns when the model is gone, not when it has begun to go.
    reply = client.infer(echo(model="add2"))
    assert reply.code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE)
    assert reply.trailers == {"reactant-not-started": "1"}
    fresh.assert_well()


def test_load_again_goes_on_serving(fresh: Target) -> None:
    """A second load is a reload: requests are answered throughout."""
    reload = fresh.client.start("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="echo"))
    while not reload.done():
        assert_echoes(fresh, "echo")
    reload.reply().ok()

    assert_echoes(fresh, "echo")
    fresh.assert_well()


@pytest.mark.slow
def test_unload_lets_what_is_in_flight_finish(fresh: Target, explicit_log: HookLog) -> None:
    fresh.client.load("slow_hook").ok()
    name = unique("kept")
    with busy_hooks(fresh, explicit_log, FEW_HOOK_THREADS, 0.6) as running:
        waiting = fresh.client.start_infer(slow_hook(0, id=name))
        eventually_sync(lambda: fresh.in_flight() == len(running) + 1)
        unload = fresh.client.start(
            "RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="slow_hook")
        )
        eventually_sync(lambda: "slow_hook" not in fresh.client.index(ready=True), 0.5)

        refused = fresh.client.infer(slow_hook(0))

        assert refused.code is grpc.StatusCode.UNAVAILABLE
        assert "slow_hook" in refused.details
        assert refused.trailers == {"reactant-not-started": "1"}
        assert not unload.done()
        assert not any(one.done() for one in running)
    waiting.reply().ok()
    unload.reply().ok()
    fresh.assert_well()


def test_unload_of_what_is_not_loaded(fresh: Target) -> None:
    for model in ("nope", "add2", "../echo", ""):
        reply = fresh.client.unload(model)
        assert reply.code in (grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
    fresh.assert_well()


@pytest.mark.parametrize(
    "model", ["nope", "", "../echo", "a/../echo", "/etc", "echo\0", "..", ".", "é" * 10_000]
)
def test_l4_load_of_what_is_no_bundle(fresh: Target, model: str) -> None:
    reply = fresh.client.load(model)

    assert reply.code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)
    assert len(reply.details.encode()) <= 1024
    assert fresh.client.index(ready=True).keys() == {"echo"}


@pytest.mark.slow
@pytest.mark.parametrize("model", ODD_NAMES)
def test_l4_unusual_names_work_everywhere(fresh: Target, model: str) -> None:
    client = fresh.client
    client.load(model).ok()

    assert_echoes(fresh, model)
    assert client.ready(model)
    assert client.index()[model] == ("READY", "")
    metadata = client.call("ModelMetadata", pb.ModelMetadataRequest(name=model)).ok()
    assert metadata.name == model
    assert fresh.page().value("worker_requests_total", model=model, code="OK") == 1

    client.unload(model).ok()
    assert model not in fresh.page().labels("model")


def test_load_of_a_broken_bundle_says_what_is_wrong(fresh: Target) -> None:
    reply = fresh.client.load("broken")

    assert reply.code not in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
    for fault in ("broken", "executable_inputs", "executable_outputs"):
        assert fault in reply.details
    state, reason = fresh.client.index()["broken"]
    assert state == "UNAVAILABLE"
    assert "executable_inputs" in reason
    assert "broken" not in fresh.client.index(ready=True)
    assert not fresh.client.ready("broken")
    refused = fresh.client.infer(echo(model="broken"))
    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert refused.trailers == {"reactant-not-started": "1"}
    fresh.assert_well()


def test_load_parameters_are_not_ignored(fresh: Target) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="add2")
    request.parameters["config"].string_param = '{"max_batch_size": 1}'

    reply = fresh.client.call("RepositoryModelLoad", request)

    assert reply.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "config" in reply.details


@pytest.mark.slow
def test_m4_a_hundred_loads_leave_no_series(fresh: Target) -> None:
    before = fresh.page().samples.keys()
    for _ in range(100):  # on each of the two transports
        fresh.client.load("echo_i64").ok()
        fresh.client.unload("echo_i64").ok()

    assert fresh.page().samples.keys() == before
    fresh.assert_well()
