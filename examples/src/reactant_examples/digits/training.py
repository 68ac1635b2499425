"""Trains the digit classifier: Adam on the cross-entropy, seeded, so that a machine repeats its result."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from reactant_examples.digits.data import Digits
from reactant_examples.digits.network import initial_weights, logits

EPOCHS = 30
BATCH = 64
SEED = 0
# Adam of Kingma and Ba 2015 (arXiv:1412.6980) with its default constants, the rate decayed by a cosine.
LEARNING_RATE = 2e-3
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

Tree = dict[str, jax.Array]
State = tuple[Tree, Tree, Tree]


def train(data: Digits, *, epochs: int = EPOCHS, seed: int = SEED) -> dict[str, NDArray[np.float32]]:
    """Weights after `epochs` passes over `data`, each in a new order; a remainder batch is left out."""
    random = np.random.default_rng(seed)
    steps = len(data.labels) // BATCH
    order = [random.permutation(len(data.labels))[: steps * BATCH] for _ in range(epochs)]
    batches = np.concatenate(order).reshape(epochs * steps, BATCH)
    with jax.default_device(jax.devices("cpu")[0]), jax.default_matmul_precision("highest"):
        weights = {name: jnp.asarray(array) for name, array in initial_weights(seed).items()}
        zeros = jax.tree.map(jnp.zeros_like, weights)
        state = (weights, zeros, zeros)
        # Not lax.scan: inside a loop XLA's CPU convolutions take twenty times as long.
        for count, rows in enumerate(batches, start=1):
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * count / len(batches)))
            # Numpy's float64 would make the weights f64 wherever JAX has 64-bit types on.
            scalars = np.float32(rate), np.float32(count)
            state = _adam_step(state, *scalars, data.images[rows], data.labels[rows])
        return {name: np.asarray(array) for name, array in state[0].items()}


def accuracy(weights: dict[str, NDArray[np.float32]], data: Digits) -> float:
    """The share of `data` whose most probable class is its label."""
    with jax.default_device(jax.devices("cpu")[0]):
        predicted = np.asarray(jax.jit(logits)(data.images, weights)).argmax(axis=-1)
    return float((predicted == data.labels).mean())


@jax.jit
def _adam_step(
    state: State, rate: ArrayLike, count: ArrayLike, images: ArrayLike, labels: ArrayLike
) -> State:
    """The state (weights, running mean of gradients, of their squares) after step `count`, from 1."""
    weights, mean, square = state
    gradient = jax.grad(_cross_entropy)(weights, jnp.asarray(images), jnp.asarray(labels))
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, mean, gradient)
    square = jax.tree.map(lambda s, g: BETA2 * s + (1 - BETA2) * g * g, square, gradient)
    size = rate * jnp.sqrt(1 - BETA2**count) / (1 - BETA1**count)
    weights = jax.tree.map(lambda w, m, s: w - size * m / (jnp.sqrt(s) + EPSILON), weights, mean, square)
    return weights, mean, square


def _cross_entropy(weights: Tree, images: jax.Array, labels: jax.Array) -> jax.Array:
    log_probabilities = jax.nn.log_softmax(logits(images, weights), axis=-1)
    return -jnp.take_along_axis(log_probabilities, labels[:, None], axis=-1).mean()
