"""Shows the example models at work through a stock Triton client: `python -m reactant_examples.demo`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reactant_examples.digits.data import split_digits
from reactant_examples.digits.pages import draw_page
from reactant_examples.presentation import Style, digit_row, page_picture, ranking

QUERIES = ("How do I reset my password?", "Where can I eat well tonight?")
SENTENCES = (
    "I forgot the code that lets me log in.",
    "The account was locked after three attempts.",
    "This little place makes the best ramen in town.",
    "We had a lovely dinner by the harbour.",
    "The train to Lisbon leaves at nine.",
    "A cat sleeps on the warm windowsill.",
    "Interest rates went up again this month.",
    "Her band plays jazz on Fridays.",
)
DIGITS_SHOWN = (3, 5, 8, 9)
DIGITS_ON_PAGE = 9
MODELS = ("minilm", "digits", "search", "page_reader")

_CALL_SECONDS = 60.0
_POLL_SECONDS = 0.5


class DemoError(Exception):
    """Says in plain words what keeps the demo from running, and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when it was shown, 1 when it could not be (the reason is on stderr)."""
    parser = argparse.ArgumentParser(prog="python -m reactant_examples.demo", description=__doc__)
    parser.add_argument("--url", default="localhost:8001", help="gRPC address (default: localhost:8001)")
    parser.add_argument("--wait", type=float, default=120.0, metavar="SECONDS", help="for models to compile")
    options = parser.parse_args(arguments)
    style = Style(sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    try:
        client = connect(options.url)
        try:
            wait_ready(client, options.url, options.wait)
            show(client, style)
        finally:
            client.close()
    except DemoError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def connect(url: str) -> Any:
    """A `tritonclient.grpc` client of a live server at `url`; DemoError where there is none."""
    try:
        from tritonclient import grpc as triton
    except ImportError:
        raise DemoError(
            "The demo talks through the stock Triton client, which is not installed:\n"
            "  uv sync                             (in a checkout), or\n"
            "  pip install 'tritonclient[grpc]'"
        ) from None
    client = triton.InferenceServerClient(url)
    try:
        client.is_server_live(client_timeout=_CALL_SECONDS)
    except triton.InferenceServerException as error:
        client.close()
        raise DemoError(
            f"No server answers at {url} ({error.message().partition(';')[0]}).\n"
            "Start one in another terminal and run the demo again:\n"
            "  make run"
        ) from None
    return client


def wait_ready(client: Any, url: str, patience: float) -> None:
    """Return when the models are ready; DemoError when one is missing, failed, or not ready in time.

    `patience` is in seconds.
    """
    deadline = time.monotonic() + patience
    announced = False
    while pending := [
        name for name in MODELS if not client.is_model_ready(name, client_timeout=_CALL_SECONDS)
    ]:
        index = client.get_model_repository_index(client_timeout=_CALL_SECONDS, as_json=True)
        entries = {entry["name"]: entry for entry in index.get("models", [])}
        for name in pending:
            _check_entry(name, entries.get(name), url)
        if time.monotonic() >= deadline:
            raise DemoError(f"{', '.join(pending)} still not ready after {patience:.0f} s at {url}.")
        if not announced:
            sys.stderr.write(f"Waiting for {', '.join(pending)} to be compiled ...\n")
            announced = True
        time.sleep(_POLL_SECONDS)


def _check_entry(name: str, entry: Mapping[str, str] | None, url: str) -> None:
    if entry is None:
        raise DemoError(
            f"The server at {url} has no model {name}. Build it into the server's model directory:\n"
            f"  python -m reactant_examples.build {name}"
        )
    if entry.get("state") == "UNAVAILABLE":
        raise DemoError(
            f"The server at {url} cannot serve {name}: {entry.get('reason') or 'no reason given'}"
        )


def show(client: Any, style: Style) -> None:
    """Ask the models, and write what they answer to stdout."""
    begin = time.perf_counter()
    vectors = embed(client, [QUERIES[0], *SENTENCES])
    took = (time.perf_counter() - begin) * 1e3
    parts = [
        f"{style.bold('minilm')}: {len(vectors)} sentences to vectors of {vectors.shape[1]} numbers in "
        f"{took:.0f} ms; by cosine:"
    ]
    # Vectors have unit length, so that their products are the cosines.
    parts.append(ranking(QUERIES[0], SENTENCES, vectors[1:] @ vectors[0], style))
    begin = time.perf_counter()
    order, scores = search(client, QUERIES[1], SENTENCES)
    took = (time.perf_counter() - begin) * 1e3
    parts.append(f"{style.bold('search')}, a meta that calls minilm: one request, {took:.0f} ms:")
    parts.append(ranking(QUERIES[1], [SENTENCES[index] for index in order], scores, style))
    _, held_out = split_digits()
    rows = [int(np.flatnonzero(held_out.labels == digit)[0]) for digit in DIGITS_SHOWN]
    images, labels = held_out.images[rows], held_out.labels[rows]
    begin = time.perf_counter()
    probabilities = classify(client, images)
    took = (time.perf_counter() - begin) * 1e3
    parts.append(f"{style.bold('digits')}: {len(rows)} pictures it was not trained on, in {took:.0f} ms:")
    parts.append(digit_row(images, labels, probabilities, style))
    page = draw_page(held_out, DIGITS_ON_PAGE, seed=1)
    begin = time.perf_counter()
    digits, corners = read_page(client, page.image)
    took = (time.perf_counter() - begin) * 1e3
    parts.append(f"{style.bold('page_reader')}, a meta over two models: {len(digits)} in {took:.0f} ms:")
    # What is on the page where each was found; the order may differ where two are nearly as high.
    nearest = np.abs(page.corners - corners[:, None]).max(axis=2).argmin(axis=1)
    parts.append(page_picture(page.image, corners, digits, page.labels[nearest], style))
    sys.stdout.write("\n" + "\n\n".join(parts) + "\n\n")


def embed(client: Any, texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors f32 [n, 384] of `texts`, by model `minilm`."""
    data = np.array([text.encode("utf-8") for text in texts], dtype=np.object_)
    (vectors,) = _infer(client, "minilm", {"text": data}, "embedding")
    return vectors


def search(client: Any, query: str, passages: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Indices i32 [p] of `passages`, the best first, and their scores f32 [p], by meta `search`."""
    texts = {
        name: np.array([text.encode("utf-8") for text in given], dtype=np.object_)
        for name, given in (("query", [query]), ("passages", passages))
    }
    order, scores = _infer(client, "search", texts, "order", "scores")
    return order, scores


def read_page(client: Any, image: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Digits i32 [d] on `image` f32 [64, 64], and their corners i32 [d, 2], by meta `page_reader`."""
    digits, corners = _infer(client, "page_reader", {"page": image}, "digit", "corner")
    return digits, corners


def classify(client: Any, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities f32 [n, 10] of `images` f32 [n, 8, 8], by model `digits`."""
    (probabilities,) = _infer(client, "digits", {"image": images}, "probabilities")
    return probabilities


def _infer(client: Any, model: str, inputs: Mapping[str, NDArray[Any]], *outputs: str) -> list[NDArray[Any]]:
    from tritonclient import grpc as triton

    tensors = []
    for name, data in inputs.items():
        tensor = triton.InferInput(name, list(data.shape), "BYTES" if data.dtype.hasobject else "FP32")
        tensor.set_data_from_numpy(data)
        tensors.append(tensor)
    try:
        answer = client.infer(model, tensors, client_timeout=_CALL_SECONDS)
    except triton.InferenceServerException as error:
        raise DemoError(f"{model}: {error.status()}: {error.message()}") from None
    return [np.asarray(answer.as_numpy(output)) for output in outputs]


if __name__ == "__main__":
    raise SystemExit(main())
