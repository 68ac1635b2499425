"""The function every server of the `worker` benchmark serves; needs numpy and JAX, which each of them has."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MODEL = "p1"
FEATURES = 16
BATCH_SIZES = (1, 8, 32, 128)


def weights() -> dict[str, Any]:
    """The same for everybody: `w` f32 [16, 16] and `b` f32 [16]."""
    random = np.random.default_rng(0)
    return {
        "w": random.normal(size=(FEATURES, FEATURES)).astype(np.float32),
        "b": random.normal(size=FEATURES).astype(np.float32),
    }


def function(inputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """`x` f32 [n, 16] to `y` f32 [n, 16]."""
    return {"y": jnp.tanh(inputs["x"] @ parameters["w"] + parameters["b"])}


def compiled() -> Callable[[Sequence[Any]], Any]:
    """The jitted function over a batch: a list of f32 [n, 16] to their rows' answers, f32 [sum of n, 16].

    Compiled for `BATCH_SIZES`, as our worker's programs are; fewer rows are padded with zeros.
    """
    parameters = {name: jnp.asarray(value) for name, value in weights().items()}
    jitted = jax.jit(lambda x: function({"x": x}, parameters)["y"])

    def run(arrays: Sequence[Any]) -> Any:
        rows = sum(len(array) for array in arrays)
        size = BATCH_SIZES[bisect.bisect_left(BATCH_SIZES, rows)]
        if len(arrays) == 1 and rows == size:
            return np.asarray(jitted(arrays[0]))
        batch = np.zeros((size, FEATURES), np.float32)
        np.concatenate(arrays, out=batch[:rows])
        return np.asarray(jitted(batch))[:rows]

    for size in BATCH_SIZES:
        run([np.zeros((size, FEATURES), np.float32)])
    return run
