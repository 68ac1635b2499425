"""Pages to read: scanned digits at random places, for the demo and the tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reactant_examples.digits.data import SIDE, Digits

PAGE = 64
"""Height and width of a page, pixels."""

GAP = 3
"""Pixels between the squares of two digits, along one axis at least."""

_TRIES = 10_000


@dataclass(frozen=True, slots=True)
class Page:
    """`image` f32 [64, 64] of values 0 to 16, and its digits from the top down.

    `labels` i32 [d], and `corners` i32 [d, 2]: the row and the column where each begins.
    """

    image: NDArray[np.float32]
    labels: NDArray[np.int32]
    corners: NDArray[np.int32]


def draw_page(digits: Digits, count: int, seed: int) -> Page:
    """A page with `count` of `digits`; ValueError when there is no room for them."""
    random = np.random.default_rng(seed)
    corners: list[tuple[int, int]] = []
    for _ in range(_TRIES):
        if len(corners) == count:
            break
        y, x = (int(at) for at in random.integers(0, PAGE - SIDE + 1, 2))
        if all(max(abs(y - other_y), abs(x - other_x)) >= SIDE + GAP for other_y, other_x in corners):
            corners.append((y, x))
    else:
        raise ValueError(f"no room for {count} digits on a page")
    rows = random.integers(0, len(digits.labels), count)
    image = np.zeros((PAGE, PAGE), np.float32)
    for (y, x), row in zip(sorted(corners), rows, strict=True):
        image[y : y + SIDE, x : x + SIDE] = digits.images[row]
    return Page(image, digits.labels[rows], np.array(sorted(corners), np.int32).reshape(-1, 2))
