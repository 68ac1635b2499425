"""A bundle that is no good fails alone, quickly, cheaply and with its reason (cases L5, L10 to L12)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.support.busy import unique
from tests.support.client import Client
from tests.support.corrupt import CORRUPT, Corrupt
from tests.support.messages import arrays, echo, floats, infer, tensor
from tests.support.process import ServerProcess, worker_process
from tests.support.shared import SharedServer
from tests.support.target import Target

from reactant_core.bundle.weight_writer import write_weights
from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

MEBI = 1 << 20
SOUND = ("columns", "echo", "weights_bf16", "weights_f8")

ALIASING = """
module @aliasing {
  func.func public @main(
    %x: tensor<1x4xf32>, %w: tensor<4xf32> {tf.aliasing_output = 1 : i32}
  ) -> (tensor<1x4xf32>, tensor<4xf32>) {
    %row = stablehlo.reshape %w : (tensor<4xf32>) -> tensor<1x4xf32>
    %y = stablehlo.add %x, %row : tensor<1x4xf32>
    %more = stablehlo.add %w, %w : tensor<4xf32>
    return %y, %more : tensor<1x4xf32>, tensor<4xf32>
  }
}
"""
ALIASING_MANIFEST = """
format_version: "3"
executable_inputs:
  - {name: X, dtype: f32, shape: nk, dims: {k: 4}}
executable_outputs:
  - {name: Y, dtype: f32, shape: nk, dims: {k: 4}}
  - {name: more, dtype: f32, shape: k, dims: {k: 4}}
batching: {compiled_batch_sizes: [1]}
"""
NAMED_NO = """
format_version: "3"
executable_inputs:
  - {name: no, dtype: f32, shape: nk, dims: {k: 4}}
executable_outputs:
  - {name: on, dtype: f32, shape: nk, dims: {k: 4}}
batching: {compiled_batch_sizes: [1, 4]}
"""


@pytest.fixture(scope="module")
def repository(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sound bundles and corrupt ones side by side."""
    folder = tmp_path_factory.mktemp("corrupt")
    for name in SOUND:
        (folder / name).symlink_to(fixtures / name)
    for corrupt in CORRUPT:
        corrupt.write(fixtures, folder)
    aliasing = folder / "aliasing"
    aliasing.mkdir()
    write_weights(aliasing / "weights.safetensors", {"w": np.array([1, 2, 3, 4], np.float32)}, ["w"])
    (aliasing / "model.b1.mlir").write_text(ALIASING)
    (aliasing / "manifest.yaml").write_text(ALIASING_MANIFEST)
    shutil.copytree(fixtures / "echo", folder / "named_no")
    (folder / "named_no" / "manifest.yaml").write_text(NAMED_NO)
    return folder


@pytest.fixture(scope="module")
def _server(repository: Path, workspace: Path, cache: Path) -> Iterator[SharedServer]:
    def make() -> ServerProcess:
        return worker_process(
            [repository],
            log=workspace / f"{unique('corrupt')}.log",
            cache=cache,
            environ={"INFERENCE_SERVER_MODEL_CONTROL_MODE": "explicit"},
        )

    with SharedServer("corrupt", make, ("model failed to load",)) as server:
        yield server


@pytest.fixture
def target(_server: SharedServer) -> Target:
    """A worker that loads by request, with `echo` loaded."""
    target = _server.running()
    if "echo" not in target.client.index(ready=True):
        target.client.load("echo").ok()
    return target


@pytest.mark.slow
@pytest.mark.parametrize("corrupt", CORRUPT, ids=lambda corrupt: corrupt.id)
def test_it_fails_alone(target: Target, corrupt: Corrupt) -> None:
    client, model = target.client, corrupt.model
    # A damaged program is parsed by a child process that may have to be started first.
    patience = 1.0 if corrupt.id.startswith(("L11", "L12")) else 10.0
    before = target.process.resident_bytes()

    reply = client.load(model)

    assert reply.code not in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
    assert len(reply.details.encode()) <= 1024
    assert reply.seconds < patience
    assert target.process.resident_bytes() - before < 100 * MEBI
    state, reason = client.index()[model]
    assert state == "UNAVAILABLE"
    missing = [text for text in corrupt.reasons if text not in reason]
    assert not missing, f"{missing} not in: {reason}"
    assert not client.ready(model)
    refused = client.infer(echo(model=model))
    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert refused.seconds < 0.25
    target.assert_well()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["weights_bf16", "weights_f8"])
def test_l11_narrow_floats_load(target: Target, model: str) -> None:
    target.client.load(model).ok()

    outputs = arrays(target.client.infer(echo(2, model=model)).ok())

    np.testing.assert_array_equal(outputs["Y"], floats(2, start=1.0) + np.array([1, 2, 3, 4], np.float32))


@pytest.mark.slow
def test_l10_a_weight_the_program_would_overwrite_stays(target: Target) -> None:
    target.client.load("aliasing").ok()

    for _ in range(3):
        outputs = arrays(target.client.infer(echo(model="aliasing")).ok())
        np.testing.assert_array_equal(outputs["Y"], floats(1, start=1.0) + np.array([1, 2, 3, 4], np.float32))
        np.testing.assert_array_equal(outputs["more"], np.array([2, 4, 6, 8], np.float32))


@pytest.mark.slow
def test_l12_a_tensor_named_no_is_not_a_boolean(target: Target) -> None:
    target.client.load("named_no").ok()

    outputs = arrays(target.client.infer(infer("named_no", tensor("no", floats(1)))).ok())

    np.testing.assert_array_equal(outputs["on"], floats(1))


@pytest.mark.slow
def test_the_start_up_set_settles_around_them(repository: Path, workspace: Path, cache: Path) -> None:
    process = worker_process([repository], log=workspace / "settles.log", cache=cache)
    with process, Client(process.address) as client:
        process.wait_ready()
        target = Target("settles", process, client)
        sound = {*SOUND, "aliasing", "named_no"}
        index = client.index()

        assert client.index(ready=True).keys() == sound
        assert index.keys() == sound | {corrupt.model for corrupt in CORRUPT}
        for corrupt in CORRUPT:
            state, reason = index[corrupt.model]
            assert state == "UNAVAILABLE"
            assert [text for text in corrupt.reasons if text not in reason] == []
        body = process.get("/readyz").json()
        assert body["models"] == {"total": len(index), "ready": len(sound), "failed": len(CORRUPT)}
        assert body["failed"].keys() == {corrupt.model for corrupt in CORRUPT}
        assert client.call("ServerReady", pb.ServerReadyRequest()).ok().ready
        checked = client.health.Check(HealthCheckRequest(service=CORRUPT[0].model), timeout=5)
        assert checked.status == HealthCheckResponse.NOT_SERVING
        page = target.page()
        assert page.value("worker_startup_models", state="failed") == len(CORRUPT)
        assert page.labels("model", "worker_queue_depth") == sound
        eventually_sync(lambda: target.in_flight() == 0)
        target.assert_well()
