"""Scikit-learn's digits: 1,797 scans of 8 x 8, from the UCI set of Alpaydin and Kaynak (1998)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reactant_examples.wheels import wheel_file

SIDE = 8
CLASSES = 10
DISTRIBUTION = "scikit-learn"
HELD_OUT = 0.25
SEED = 0


@dataclass(frozen=True, slots=True)
class Digits:
    """`images` f32 [n, 8, 8] with values 0 to 16, and `labels` i32 [n] with values 0 to 9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int32]


def split_digits() -> tuple[Digits, Digits]:
    """The set as (training, held out): a fixed random quarter of every digit is held out."""
    table = np.loadtxt(wheel_file(DISTRIBUTION, "sklearn/datasets/data/digits.csv.gz"), delimiter=",")
    images = table[:, :-1].reshape(-1, SIDE, SIDE).astype(np.float32)
    labels = table[:, -1].astype(np.int32)
    order = np.random.default_rng(SEED).permutation(len(labels))
    held_out = np.zeros(len(labels), np.bool_)
    for digit in range(CLASSES):
        rows = order[labels[order] == digit]
        held_out[rows[: round(len(rows) * HELD_OUT)]] = True
    held_out_rows, training_rows = order[held_out[order]], order[~held_out[order]]
    return (
        Digits(images[training_rows], labels[training_rows]),
        Digits(images[held_out_rows], labels[held_out_rows]),
    )
