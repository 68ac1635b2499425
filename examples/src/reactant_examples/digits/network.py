"""The digit classifier as a JAX function: two convolutions and two linear layers."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from reactant_examples.digits.data import CLASSES, SIDE

BRIGHTEST = 16.0

_SHAPES = {
    "conv1.weight": (3, 3, 1, 16),
    "conv2.weight": (3, 3, 16, 32),
    "hidden.weight": (4 * 4 * 32, 64),
    "output.weight": (64, CLASSES),
}


def initial_weights(seed: int) -> dict[str, NDArray[np.float32]]:
    """Weights to start training from: zero biases, and normal matrices of variance 2 / fan-in.

    The variance is the one of He et al. 2015 (arXiv:1502.01852).
    """
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in _SHAPES.items():
        deviation = np.sqrt(2.0 / np.prod(shape[:-1]))
        weights[name] = random.normal(scale=deviation, size=shape).astype(np.float32)
        weights[name.replace("weight", "bias")] = np.zeros(shape[-1], np.float32)
    return weights


def classify(inputs: Mapping[str, jax.Array], weights: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """`image` f32 [n, 8, 8] of values 0 (white) to 16 (black) to `probabilities` f32 [n, 10]."""
    return {"probabilities": jax.nn.softmax(logits(inputs["image"], weights), axis=-1)}


def logits(image: jax.Array, weights: Mapping[str, jax.Array]) -> jax.Array:
    """Unnormalised log-probabilities f32 [n, 10] of `image` f32 [n, 8, 8]."""
    hidden = (image / BRIGHTEST)[..., None]
    hidden = jax.nn.relu(_convolution(hidden, weights, "conv1"))
    hidden = jax.nn.relu(_convolution(hidden, weights, "conv2"))
    # Halves both sides by taking the largest of every 2 x 2 block.
    hidden = hidden.reshape(-1, SIDE // 2, 2, SIDE // 2, 2, hidden.shape[-1]).max(axis=(2, 4))
    hidden = hidden.reshape(hidden.shape[0], -1)
    hidden = jax.nn.relu(hidden @ weights["hidden.weight"] + weights["hidden.bias"])
    return jnp.asarray(hidden @ weights["output.weight"] + weights["output.bias"])


def _convolution(hidden: jax.Array, weights: Mapping[str, jax.Array], name: str) -> jax.Array:
    convolved = lax.conv_general_dilated(
        hidden, weights[f"{name}.weight"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return convolved + weights[f"{name}.bias"]
