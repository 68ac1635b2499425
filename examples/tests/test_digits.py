from __future__ import annotations

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from reactant_examples.digits.data import CLASSES, Digits, split_digits
from reactant_examples.digits.network import classify
from reactant_examples.digits.training import accuracy, train

Weights = dict[str, NDArray[np.float32]]


@pytest.fixture(scope="module")
def split() -> tuple[Digits, Digits]:
    return split_digits()


@pytest.fixture(scope="module")
def trained(split: tuple[Digits, Digits]) -> Weights:
    return train(split[0])


@pytest.mark.slow
def test_the_held_out_quarter_holds_a_quarter_of_every_digit(split: tuple[Digits, Digits]) -> None:
    training, held_out = split
    assert (len(training.labels), len(held_out.labels)) == (1347, 450)
    assert held_out.images.shape[1:] == (8, 8)
    assert (held_out.images.min(), held_out.images.max()) == (0.0, 16.0)
    shares = np.bincount(held_out.labels) / np.bincount(np.concatenate([training.labels, held_out.labels]))
    assert len(shares) == CLASSES
    np.testing.assert_allclose(shares, 0.25, atol=0.01)


@pytest.mark.slow
def test_held_out_digits_are_read_right(split: tuple[Digits, Digits], trained: Weights) -> None:
    assert accuracy(trained, split[1]) >= 0.96


@pytest.mark.slow
def test_probabilities_are_probabilities(split: tuple[Digits, Digits], trained: Weights) -> None:
    probabilities = np.asarray(jax.jit(classify)({"image": split[1].images}, trained)["probabilities"])
    assert probabilities.shape == (450, CLASSES)
    assert probabilities.min() >= 0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.slow
def test_training_repeats_itself_bit_for_bit(split: tuple[Digits, Digits]) -> None:
    first, second = (train(split[0], epochs=1) for _ in range(2))
    assert all((first[name] == second[name]).all() for name in first)
    assert any((first[name] != train(split[0], epochs=1, seed=1)[name]).any() for name in first)
