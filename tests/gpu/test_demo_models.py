"""The demo models on a GPU against the same models on the CPU, both through a worker.

`REACTANT_TEST_BUNDLES` names a folder of demo bundles that are already built; otherwise they are built.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.client import Client
from tests.support.process import worker_process

from reactant_proto import inference_pb2 as pb

REFERENCE = Path(__file__).resolve().parents[2] / "examples/tests/data/minilm_reference.json"
BACKENDS = ("cpu", "cuda")


def gpu_present() -> bool:
    """Whether the driver lists a GPU."""
    tool = shutil.which("nvidia-smi")
    return tool is not None and b"GPU" in subprocess.run([tool, "-L"], capture_output=True).stdout


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(500),
    pytest.mark.skipif(not gpu_present(), reason="no NVIDIA GPU"),
]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("REACTANT_TEST_BUNDLES")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("bundles")
    subprocess.run(
        [sys.executable, "-m", "reactant_examples.build", "--out", str(folder)], check=True, timeout=300
    )
    return folder


@pytest.fixture(scope="module")
def clients(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    scratch = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        servers = {}
        for backend in BACKENDS:
            server = worker_process(
                [bundles],
                log=scratch / f"{backend}.log",
                cache=scratch / backend,
                environ={
                    "INFERENCE_SERVER_RUNTIME_BACKEND": backend,
                    "INFERENCE_SERVER_RUNTIME_PREALLOCATE": "false",
                },
            )
            servers[backend] = stack.enter_context(server)
        for server in servers.values():
            server.wait_ready(400)
        yield {name: stack.enter_context(Client(server.address)) for name, server in servers.items()}


def texts(sentences: list[str]) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="minilm")
    request.inputs.add(name="text", datatype="BYTES", shape=[len(sentences)])
    encoded = [sentence.encode() for sentence in sentences]
    request.raw_input_contents.append(b"".join(struct.pack("<I", len(e)) + e for e in encoded))
    return request


def answer(client: Client, request: pb.ModelInferRequest) -> np.ndarray[Any, Any]:
    response = client.infer(request, timeout=120).ok()
    return np.frombuffer(response.raw_output_contents[0], np.float32).reshape(response.outputs[0].shape)


def test_embeddings_agree_with_the_cpu_and_with_pytorch(clients: dict[str, Client]) -> None:
    reference = json.loads(REFERENCE.read_text())["sentences"]
    sentences = [" ".join([entry["text"]] * entry.get("repeat", 1)) for entry in reference]
    expected = np.array([entry["embedding"] for entry in reference], np.float32)
    alone = {b: np.vstack([answer(c, texts([s])) for s in sentences]) for b, c in clients.items()}
    together = {b: answer(c, texts(sentences)) for b, c in clients.items()}
    for result in (alone, together):
        difference = float(np.abs(result["cuda"] - result["cpu"]).max())
        print(f"largest difference of an embedding, cuda to cpu: {difference:.2e}")
        assert difference < 1e-3
        assert float(np.abs(result["cuda"] - expected).max()) < 1e-3
        np.testing.assert_allclose(np.linalg.norm(result["cuda"], axis=1), 1.0, atol=1e-5)


def test_digit_probabilities_agree_with_the_cpu(clients: dict[str, Client]) -> None:
    images = np.random.default_rng(7).uniform(0, 16, (100, 8, 8)).astype(np.float32)
    request = pb.ModelInferRequest(model_name="digits")
    request.inputs.add(name="image", datatype="FP32", shape=images.shape)
    request.raw_input_contents.append(images.tobytes())
    cpu, cuda = (answer(clients[backend], request) for backend in BACKENDS)
    difference = float(np.abs(cuda - cpu).max())
    print(f"largest difference of a probability, cuda to cpu: {difference:.2e}")
    assert difference < 1e-3
