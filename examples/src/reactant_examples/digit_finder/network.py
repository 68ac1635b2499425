"""The digit finder as a JAX function: one convolution with the average digit.

A matched filter (Turin 1960, doi:10.1109/TIT.1960.1057571): where a page resembles the template most, there
a digit is. Its one weight is made of the training digits, not trained.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from jax import lax
from numpy.typing import NDArray

from reactant_examples.digits.data import SIDE, Digits
from reactant_examples.digits.pages import PAGE

PLACES = PAGE - SIDE + 1
"""Places along an axis where a digit can begin."""


def template(training: Digits) -> NDArray[np.float32]:
    """The average digit f32 [8, 8], scaled so that the median digit has a likeness of 1 where it is."""
    average = training.images.mean(axis=0, dtype=np.float64)
    typical = np.median(np.einsum("nhw,hw->n", training.images, average))
    return np.asarray(average / typical, np.float32)


def likeness(inputs: Mapping[str, jax.Array], weights: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """`page` f32 [n, 64, 64] of values 0 (white) to 16 (black) to `likeness` f32 [n, 57, 57].

    The likeness at row y, column x is that of the 8 x 8 pixels whose top left corner is there.
    """
    found = lax.conv_general_dilated(
        inputs["page"][..., None],
        weights["template"][..., None, None],
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return {"likeness": found[..., 0]}
