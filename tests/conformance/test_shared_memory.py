"""System shared memory through Triton's own client (cases S1 to S3, S5)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tests.support.messages import floats
from tests.support.target import Target

from reactant_proto import inference_pb2 as pb

SHM = Path("/dev/shm")
GUARD = b"\xa5" * 64


@pytest.fixture
def client(target: Target) -> Iterator[Any]:
    with triton.InferenceServerClient(target.process.address) as connected:
        yield connected
        connected.unregister_system_shared_memory()
    target.assert_well()


@pytest.fixture
def shm() -> Iterator[Path]:
    """An object of 4096 bytes, all guard pattern."""
    path = SHM / f"conformance-{uuid4().hex}"
    path.write_bytes(GUARD * 64)
    yield path
    path.unlink(missing_ok=True)


def place(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def given(region: str, size: int, offset: int = 0, rows: int = 1) -> Any:
    tensor = triton.InferInput("X", [rows, 4], "FP32")
    tensor.set_shared_memory(region, size, offset=offset)
    return tensor


def into(region: str, size: int, offset: int = 0) -> Any:
    output = triton.InferRequestedOutput("Y")
    output.set_shared_memory(region, size, offset=offset)
    return output


def status(error: pytest.ExceptionInfo[triton.InferenceServerException]) -> str:
    return str(error.value.status()).removeprefix("StatusCode.")


def test_tensors_go_in_and_out_by_shared_memory(client: Any, shm: Path) -> None:
    client.register_system_shared_memory("in", f"/{shm.name}", 64, offset=100)
    client.register_system_shared_memory("out", f"/{shm.name}", 1024, offset=1024)
    place(shm, 103, floats(2, start=5.0).tobytes())  # nothing is aligned

    result = client.infer("echo", [given("in", 32, 3, rows=2)], outputs=[into("out", 64, 7)])

    response = result.get_response()
    assert list(response.raw_output_contents) == [b""]
    assert response.outputs[0].parameters["shared_memory_region"].string_param == "out"
    content = shm.read_bytes()
    assert content[1031 : 1031 + 32] == floats(2, start=5.0).tobytes()
    assert content[1031 + 32 :] == (GUARD * 64)[1031 + 32 :]
    assert content[:100] == (GUARD * 64)[:100]
    found = client.get_system_shared_memory_status(as_json=True)["regions"]
    assert set(found) == {"in", "out"}
    assert found["in"]["key"] == f"/{shm.name}"
    assert int(found["out"]["offset"]) == int(found["out"]["byte_size"]) == 1024


def test_one_output_in_shared_memory_one_in_the_response(client: Any, shm: Path) -> None:
    client.register_system_shared_memory("r", f"/{shm.name}", 4096)
    place(shm, 0, floats(1).tobytes())
    a = triton.InferInput("A", [1, 4], "FP32")
    a.set_shared_memory("r", 16)
    b = triton.InferInput("B", [1, 4], "FP32")
    b.set_data_from_numpy(floats(1, start=10.0))
    total = triton.InferRequestedOutput("SUM")
    total.set_shared_memory("r", 16, offset=512)

    result = client.infer("add2", [a, b], outputs=[total, triton.InferRequestedOutput("DIFF")])

    np.testing.assert_array_equal(result.as_numpy("DIFF"), floats(1) - floats(1, start=10.0))
    assert shm.read_bytes()[512:528] == (floats(1) + floats(1, start=10.0)).tobytes()


def test_s1_names_and_unregistering(client: Any, shm: Path, target: Target) -> None:
    client.register_system_shared_memory("R", f"/{shm.name}", 64)
    for key in (shm.name, "other"):
        with pytest.raises(triton.InferenceServerException) as taken:
            client.register_system_shared_memory("R", key, 64)
        assert status(taken) == "ALREADY_EXISTS"
    client.register_system_shared_memory("overlapping", f"/{shm.name}", 64, offset=32)
    client.unregister_system_shared_memory("unknown")
    with triton.InferenceServerClient(target.process.address) as another:
        another.unregister_system_shared_memory()
    with pytest.raises(triton.InferenceServerException, match="'R' is not registered") as gone:
        client.infer("echo", [given("R", 16)])
    assert status(gone) == "NOT_FOUND"


@pytest.mark.parametrize(("size", "offset"), [(200, 4000), (16, 2**64 - 8), (0, 0)])
def test_s2_ranges_outside_the_object(target: Target, shm: Path, size: int, offset: int) -> None:
    request = pb.SystemSharedMemoryRegisterRequest(name="R", key=shm.name, offset=offset, byte_size=size)
    assert target.client.call("SystemSharedMemoryRegister", request).code is grpc.StatusCode.INVALID_ARGUMENT
    target.assert_well()


@pytest.mark.parametrize(
    ("tensor", "output"),
    [
        (given("R", 16, 60), into("R", 16)),
        (given("R", 8), into("R", 16)),
        (given("R", 16), into("R", 8)),
        (given("R", 16), into("R", 16, 60)),
    ],
    ids=["input outside", "input of another size", "output too small", "output outside"],
)
def test_s2_windows_outside_the_region(client: Any, shm: Path, tensor: Any, output: Any) -> None:
    client.register_system_shared_memory("R", f"/{shm.name}", 64)
    with pytest.raises(triton.InferenceServerException) as refused:
        client.infer("echo", [tensor], outputs=[output])
    assert status(refused) == "INVALID_ARGUMENT"
    assert shm.read_bytes() == GUARD * 64


@pytest.mark.parametrize("key", ["../../etc/passwd", "/a/b", "////", "", "x" * 300, "a\0b", "///reactant-x"])
def test_s3_keys_that_are_no_object(target: Target, key: str) -> None:
    request = pb.SystemSharedMemoryRegisterRequest(name="R", key=key, offset=0, byte_size=1)
    assert target.client.call("SystemSharedMemoryRegister", request).code is grpc.StatusCode.INVALID_ARGUMENT


def test_s5_an_object_made_anew_and_one_cut_short(client: Any, shm: Path) -> None:
    place(shm, 0, floats(1).tobytes())
    client.register_system_shared_memory("R", f"/{shm.name}", 64)
    shm.unlink()
    shm.write_bytes(bytes(4096))

    np.testing.assert_array_equal(client.infer("echo", [given("R", 16)]).as_numpy("Y"), floats(1))

    client.unregister_system_shared_memory("R")
    client.register_system_shared_memory("R", f"/{shm.name}", 64)
    os.truncate(shm, 8)
    with pytest.raises(triton.InferenceServerException, match="shorter") as refused:
        client.infer("echo", [given("R", 16)])
    assert status(refused) == "INVALID_ARGUMENT"
