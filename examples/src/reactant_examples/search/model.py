"""The search meta: embeds a query and passages with `minilm`, and ranks the passages.

The server runs this file from inside the bundle, so it imports nothing from the package it was built by.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 384
LARGEST_BATCH = 32
"""Texts that `minilm` is compiled to embed at a time."""


def run(inputs: dict[str, NDArray[Any]], call: Any, request: Any) -> dict[str, NDArray[Any]]:
    """`query` BYTES [1] and `passages` BYTES [p], UTF-8, to `order` i32 [p] and `scores` f32 [p].

    `order` has the passages' indices, the one nearest to the query first, and `scores` the cosines in that
    order; among equals the earlier passage comes first.
    """
    for name in ("query", "passages"):
        _check_text(name, inputs[name], request)
    texts = np.concatenate([inputs["query"], inputs["passages"]])
    vectors = call.scratch((len(texts), WIDTH))
    for begin in range(0, len(texts), LARGEST_BATCH):
        some = slice(begin, begin + LARGEST_BATCH)
        vectors[some] = call("minilm", {"text": texts[some]})["embedding"]
    # Vectors have unit length, so that their products are the cosines.
    scores = vectors[1:] @ vectors[0]
    order = np.argsort(-scores, kind="stable")
    return {"order": order.astype(np.int32), "scores": scores[order]}


def _check_text(name: str, elements: NDArray[Any], request: Any) -> None:
    """Refuses what is not UTF-8 under the name that the client has for it."""
    for index, element in enumerate(elements):
        try:
            element.decode("utf-8")
        except UnicodeDecodeError as error:
            request.invalid(
                f"{name}[{index}]: not valid UTF-8 at byte {error.start} "
                f"(0x{element[error.start]:02x}, {error.reason})"
            )
