"""The page reader meta: finds digits with `digit_finder`, cuts them out, reads them with `digits`.

How many crops there are depends on the page; they are read in batches. The server runs this file from
inside the bundle, so it imports nothing from the package it was built by.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 8
LARGEST_BATCH = 128
"""Pictures that `digits` is compiled to read at a time."""

LEAST_LIKENESS = 0.5
"""What is half as much like a digit as a typical one is taken for one."""


def run(inputs: dict[str, NDArray[Any]], call: Any, request: Any) -> dict[str, NDArray[Any]]:
    """`page` f32 [64, 64], 0 (white) to 16 (black), to the digits on it, from the top down.

    Gives `digit` i32 [d], `probability` f32 [d] of each, and `corner` i32 [d, 2]: the row and the column
    where its 8 x 8 pixels begin. Digits must not be nearer to each other than their own size.
    """
    page = inputs["page"]
    if not np.isfinite(page).all():
        request.invalid("page: has values that are not finite")
    likeness = call("digit_finder", {"page": page[None]})["likeness"][0]
    corners = _peaks(likeness)
    crops = call.scratch((len(corners), SIDE, SIDE))
    for crop, (y, x) in zip(crops, corners, strict=True):
        crop[...] = page[y : y + SIDE, x : x + SIDE]
    digits, probabilities = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for begin in range(0, len(crops), LARGEST_BATCH):
        some = call("digits", {"image": crops[begin : begin + LARGEST_BATCH]})["probabilities"]
        digits.append(some.argmax(axis=1).astype(np.int32))
        probabilities.append(some.max(axis=1))
    return {
        "digit": np.concatenate(digits),
        "probability": np.concatenate(probabilities),
        "corner": corners,
    }


def _peaks(likeness: NDArray[Any]) -> NDArray[np.int32]:
    """Corners i32 [d, 2] of the best places, by row and column; none is a digit's size from a better one."""
    left = np.array(likeness)
    corners = []
    while (best := left.max()) >= LEAST_LIKENESS:
        y, x = (int(at) for at in np.argwhere(left == best)[0])
        corners.append((y, x))
        left[max(0, y - SIDE + 1) : y + SIDE, max(0, x - SIDE + 1) : x + SIDE] = -np.inf
    return np.array(sorted(corners), np.int32).reshape(-1, 2)
