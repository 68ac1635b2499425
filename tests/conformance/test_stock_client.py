"""Triton's own Python client, unchanged, against the server."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
from numpy.typing import NDArray
from tests.conformance.rows.contents import EXTREMES
from tests.support.messages import floats
from tests.support.target import Target

COMPRESSIONS = [None, "gzip"]


@pytest.fixture
def client(target: Target) -> Iterator[Any]:
    with triton.InferenceServerClient(target.process.address) as connected:
        yield connected
    target.assert_well()


def given(name: str, array: NDArray[Any], datatype: str = "FP32") -> Any:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def test_control_calls(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "1")
    assert client.get_server_metadata(as_json=True)["name"]
    assert client.get_model_metadata("echo", as_json=True)["inputs"][0]["shape"] == ["-1", "4"]
    assert client.get_model_config("echo", as_json=True)["config"]["max_batch_size"] == 4
    assert "echo" in {model.name for model in client.get_model_repository_index().models}
    assert client.get_inference_statistics("echo").model_stats[0].name == "echo"
    assert client.get_trace_settings().settings["trace_level"].value == ["OFF"]
    assert client.get_log_settings().settings["log_info"].bool_param
    assert not client.get_cuda_shared_memory_status().regions
    with pytest.raises(triton.InferenceServerException, match="explicit"):
        client.load_model("echo")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_inference(client: Any, compression: str | None) -> None:
    result = client.infer(
        "add2",
        [given("A", floats(3)), given("B", floats(3, start=2))],
        outputs=[triton.InferRequestedOutput("DIFF"), triton.InferRequestedOutput("SUM")],
        request_id="rq-é",
        priority=1,
        timeout=20_000_000,
        client_timeout=20,
        parameters={"mine": 1},
        compression_algorithm=compression,
    )

    np.testing.assert_array_equal(result.as_numpy("SUM"), floats(3) + floats(3, start=2))
    np.testing.assert_array_equal(result.as_numpy("DIFF"), floats(3) - floats(3, start=2))
    assert result.get_response().id == "rq-é"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_datatype(client: Any, compression: str | None) -> None:
    result = client.infer(
        "all_types",
        [given(name, array, name) for name, array in EXTREMES.items()],
        compression_algorithm=compression,
    )

    for name, array in EXTREMES.items():
        found = result.as_numpy(f"{name}_out")
        # Older clients read BF16 as the FP32 of the same value.
        assert found.astype(array.dtype).tobytes() == array.tobytes(), name


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_bytes(client: Any, compression: str | None) -> None:
    elements = np.array([b"a\0", b"", b"\xff\xfe\0", "é".encode()], np.object_)

    result = client.infer("echo_bytes", [given("text", elements, "BYTES")], compression_algorithm=compression)

    assert result.as_numpy("echo").tolist() == elements.tolist()


def test_deflate(client: Any, target: Target) -> None:
    """A choice on record (docs/adr/0001): the native transport does not take it, and says so."""
    tensors = [given("X", floats(3))]
    if target.name.endswith("grpcio"):
        result = client.infer("echo", tensors, compression_algorithm="deflate")
        np.testing.assert_array_equal(result.as_numpy("Y"), floats(3))
        return
    with pytest.raises(triton.InferenceServerException, match="deflate") as refused:
        client.infer("echo", tensors, compression_algorithm="deflate")
    assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


def test_bfloat16(client: Any) -> None:
    array = np.array([[1, 2]], ml_dtypes.bfloat16)

    result = client.infer("echo_bf16", [given("X", array, "BF16")])

    assert result.get_response().raw_output_contents == [bytes.fromhex("803F0040")]


def test_asynchronous_inference(client: Any) -> None:
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    for index in range(20):
        client.async_infer(
            "echo",
            [given("X", floats(1, start=index))],
            callback=lambda result, error: answers.put((result, error)),
            request_id=str(index),
        )

    for _ in range(20):
        result, error = answers.get(timeout=10)
        assert error is None
        start = float(result.get_response().id)
        np.testing.assert_array_equal(result.as_numpy("Y"), floats(1, start=start))


def test_errors_reach_the_caller(client: Any) -> None:
    with pytest.raises(triton.InferenceServerException, match="nope") as unknown:
        client.infer("nope", [given("X", floats())])
    assert unknown.value.status() == "StatusCode.NOT_FOUND"

    with pytest.raises(triton.InferenceServerException, match="'X'") as wrong:
        client.infer("echo", [given("X", floats(1, 5))])
    assert wrong.value.status() == "StatusCode.INVALID_ARGUMENT"
