"""Random inputs, and how close two answers must be."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from reactant_core.bundle.dtypes import DType

Array = np.ndarray[Any, Any]

INTEGER_LIMIT = 100
"""Random integers lie below it: an index into a vocabulary is as likely as a pixel."""


def random_array(random: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Standard normal floats, integers from 0 to 99, fair booleans."""
    if dtype.numpy == np.bool_:
        return random.integers(0, 2, shape).astype(np.bool_)
    if jnp.issubdtype(dtype.numpy, jnp.integer):
        return random.integers(0, INTEGER_LIMIT, shape).astype(dtype.numpy)
    return random.standard_normal(shape).astype(dtype.numpy)


def difference(expected: Array, actual: Array) -> str | None:
    """What tells `actual` from `expected` beyond rounding, None when nothing does.

    Floats may differ by 1e-4 (f32), 1e-9 (f64) or 2e-2 (f16, bf16), relative to the largest finite
    absolute value of the expected array; NaN and infinities must be at the same places. Everything else
    must be equal.
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return f"is {actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
    if not jnp.issubdtype(expected.dtype, jnp.floating):
        wrong = int(np.count_nonzero(expected != actual))
        return f"{wrong} of {expected.size} elements differ" if wrong else None
    tolerance = {2: 2e-2, 4: 1e-4, 8: 1e-9}[expected.dtype.itemsize]
    wide_expected, wide_actual = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide_expected)
    if not np.array_equal(wide_expected[~finite], wide_actual[~finite], equal_nan=True):
        return "infinities or NaN are at other places"
    if not finite.any():
        return None
    scale = max(float(np.abs(wide_expected[finite]).max()), 1e-30)
    error = float(np.abs(wide_expected[finite] - wide_actual[finite]).max()) / scale
    if error <= tolerance:  # false for NaN as well
        return None
    return f"differs by {error:.1e} of the largest value; at most {tolerance:.0e} is accepted"
