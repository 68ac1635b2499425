"""The demo models as a new user meets them: built, served by the supervisor, asked by a stock client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from numpy.typing import NDArray
from tests.support import metrics
from tests.support.metrics import Page
from tests.support.node_process import free_ports
from tests.support.process import HOST, ServerProcess

from reactant_core.testing import eventually_sync
from reactant_examples.digits.data import split_digits
from reactant_examples.digits.pages import draw_page

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "examples" / "tests" / "data"
REFERENCE = DATA / "minilm_reference.json"
SEARCH_SETS = DATA / "search_sets.json"
TOLERANCE = 2e-5
START_SECONDS = 300.0
WORKERS = ("worker0", "worker1")
MODELS = 5
PAGES = 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def demo_bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All demo bundles, built as `make run` builds them where the tests of examples/ have not done so."""
    folder = tmp_path_factory.getbasetemp() / "demo-bundles"
    built = subprocess.run(
        [sys.executable, "-m", "reactant_examples.build", "--out", str(folder)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


def node(bundles: Path, folder: Path, log: str) -> ServerProcess:
    """A supervisor as it comes, two CPU workers behind a gateway, on ports of its own."""
    ports = free_ports()
    settings = {
        "INFERENCE_SERVER_MODEL_DIRS": str(bundles),
        "INFERENCE_SERVER_CACHE_DIR": str(folder / "cache"),
        "INFERENCE_SERVER_ENDPOINTS_HOST": HOST,
        "INFERENCE_SERVER_RUNTIME_BACKEND": "cpu",
        **ports.environ,
        "REACTANT_RUN_DIR": str(folder / f"run-{log}"),
        "REACTANT_LOG_FORMAT": "json",
    }
    return ServerProcess(
        ["-m", "reactant_supervisor"], settings, log=folder / log, port=ports.grpc, http_port=ports.http
    )


def complete(process: ServerProcess) -> Page:
    """The node's metrics once every worker has loaded every model."""

    def page() -> Page:
        return metrics.parse(process.get("/metrics").body)

    def loaded() -> bool:
        now = page()
        return all(now.value("worker_startup_models", worker=w, state="ready") == MODELS for w in WORKERS)

    eventually_sync(loaded, START_SECONDS, what="every worker has loaded every model")
    return page()


def programs(page: Page, worker: str) -> tuple[float, float]:
    """How many a worker has compiled, and how many it found in the cache."""
    return (
        page.value("worker_compile_cache_misses_total", worker=worker),
        page.value("worker_compile_cache_hits_total", worker=worker),
    )


@pytest.fixture(scope="module")
def first_start(demo_bundles: Path, workspace: Path) -> Iterator[tuple[ServerProcess, float]]:
    """The node after its first start, and the seconds that took."""
    folder = workspace / "demo"
    folder.mkdir()
    with node(demo_bundles, folder, "first.log") as process:
        begin = time.monotonic()
        process.wait_ready(START_SECONDS)
        yield process, time.monotonic() - begin


@pytest.fixture
def client(first_start: tuple[ServerProcess, float]) -> Iterator[Any]:
    process, _ = first_start
    with triton.InferenceServerClient(process.address) as connected:
        yield connected


def embed(client: Any, *texts: bytes) -> NDArray[Any]:
    """Embeddings FP32 [n, 384] of UTF-8 texts."""
    elements = np.empty(len(texts), np.object_)
    elements[:] = list(texts)
    given = triton.InferInput("text", [len(texts)], "BYTES")
    given.set_data_from_numpy(elements)
    result = client.infer("minilm", [given], client_timeout=60).as_numpy("embedding")
    assert result.dtype == np.float32
    assert result.shape == (len(texts), 384)
    return np.asarray(result)


def reference() -> list[dict[str, Any]]:
    """Texts and their embeddings by PyTorch."""
    sentences: list[dict[str, Any]] = json.loads(REFERENCE.read_text(encoding="utf-8"))["sentences"]
    return sentences


def whole(entry: dict[str, Any]) -> bytes:
    """The text an entry stands for."""
    return " ".join([entry["text"]] * entry.get("repeat", 1)).encode()


def test_minilm_gives_the_reference_one_by_one(client: Any) -> None:
    for entry in reference():
        found = embed(client, whole(entry))[0]
        assert np.abs(found - np.array(entry["embedding"])).max() <= TOLERANCE, entry["name"]


def test_minilm_gives_the_reference_all_at_once(client: Any) -> None:
    """English, accents, CJK and emoji, empty, very long, and the rest in one request."""
    entries = reference()
    assert {"English", "accents", "CJK and emoji", "empty", "10,000 words"} <= {e["name"] for e in entries}

    found = embed(client, *map(whole, entries))

    expected = np.array([entry["embedding"] for entry in entries])
    assert np.abs(found - expected).max() <= TOLERANCE
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_minilm_embeds_what_is_empty_or_very_long(client: Any) -> None:
    found = embed(client, b"", b"word " * 10_000, "é".encode() * 10_000, b"\0")

    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_minilm_refuses_what_is_no_text_and_names_the_element(client: Any) -> None:
    with pytest.raises(triton.InferenceServerException) as caught:
        embed(client, b"fine", b"broken \xff\xfe", "é".encode())

    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert "minilm" in caught.value.message()
    assert "text[1]" in caught.value.message()
    embed(client, b"fine")


def test_minilm_refuses_more_texts_than_it_is_compiled_for(client: Any) -> None:
    with pytest.raises(triton.InferenceServerException, match="32") as caught:
        embed(client, *[b"text"] * 33)

    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_digits_gives_probabilities(client: Any) -> None:
    metadata = client.get_model_metadata("digits", as_json=True)
    name, shape = metadata["inputs"][0]["name"], metadata["inputs"][0]["shape"]
    assert shape == ["-1", "8", "8"]
    images = np.random.default_rng(0).uniform(0, 16, (5, 8, 8)).astype(np.float32)
    given = triton.InferInput(name, list(images.shape), "FP32")
    given.set_data_from_numpy(images)

    found = client.infer("digits", [given]).as_numpy("probabilities")

    assert found.shape == (5, 10)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


def search(client: Any, query: str, passages: list[str]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Order INT32 [p] and scores FP32 [p], by meta `search`."""
    tensors = []
    for name, texts in (("query", [query]), ("passages", passages)):
        elements = np.empty(len(texts), np.object_)
        elements[:] = [text.encode() for text in texts]
        given = triton.InferInput(name, [len(texts)], "BYTES")
        given.set_data_from_numpy(elements)
        tensors.append(given)
    result = client.infer("search", tensors, client_timeout=60)
    return result.as_numpy("order"), result.as_numpy("scores")


def test_search_has_the_right_passage_first(client: Any) -> None:
    """For ten queries, each with passages that share words with it and are about something else."""
    sets = json.loads(SEARCH_SETS.read_text(encoding="utf-8"))["sets"]
    assert len(sets) == 10
    for one in sets:
        order, scores = search(client, one["query"], one["passages"])
        assert order[0] == one["right"], one["query"]
        vectors = embed(client, one["query"].encode(), *(text.encode() for text in one["passages"]))
        np.testing.assert_allclose(scores, (vectors[1:] @ vectors[0])[order], atol=TOLERANCE)


def test_search_takes_more_passages_than_minilm_at_a_time(client: Any) -> None:
    passages = [f"the passage about number {index}" for index in range(100)]
    order, scores = search(client, passages[77], passages)
    assert order[0] == 77
    assert sorted(order) == list(range(100))
    assert (np.diff(scores) <= 0).all()


def test_pages_are_read_by_two_models_of_which_one_is_hidden(client: Any) -> None:
    """As many crops as there are digits; `digits` alone reads 98 % of them right."""
    _, held_out = split_digits()
    right = total = 0
    for seed in range(PAGES):
        page = draw_page(held_out, seed % 10, seed)
        given = triton.InferInput("page", list(page.image.shape), "FP32")
        given.set_data_from_numpy(page.image)
        result = client.infer("page_reader", [given], client_timeout=60)
        digits, corners = result.as_numpy("digit"), result.as_numpy("corner")
        assert len(digits) == len(page.labels)
        for corner, label in zip(page.corners, page.labels, strict=True):
            near = np.abs(corners - corner).max(axis=1) <= 1
            assert near.sum() == 1
            right += int(digits[near.argmax()] == label)
            total += 1
    assert right / total >= 0.9

    assert "digit_finder" not in {model.name for model in client.get_model_repository_index().models}
    with pytest.raises(triton.InferenceServerException) as hidden:
        client.get_model_metadata("digit_finder")
    assert hidden.value.status() == "StatusCode.NOT_FOUND"


def test_the_demo_shows_every_model(first_start: tuple[ServerProcess, float]) -> None:
    process, _ = first_start
    shown = subprocess.run(
        [sys.executable, "-m", "reactant_examples.demo", "--url", process.address],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    for name in ("minilm", "search", "digits", "page_reader"):
        assert f"\n{name}" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_a_second_start_compiles_nothing_and_is_faster(
    first_start: tuple[ServerProcess, float], demo_bundles: Path, workspace: Path
) -> None:
    """The first node still runs: its programs count, and it takes no port of the second."""
    first, first_seconds = first_start
    first_page = complete(first)
    with node(demo_bundles, workspace / "demo", "second.log") as process:
        begin = time.monotonic()
        process.wait_ready(START_SECONDS)
        seconds = time.monotonic() - begin

        page = complete(process)
        with triton.InferenceServerClient(process.address) as client:
            embed(client, b"fine")
    for worker in WORKERS:
        needed = sum(programs(first_page, worker))
        assert needed > 0
        assert programs(page, worker) == (0, needed)
    assert seconds < first_seconds
