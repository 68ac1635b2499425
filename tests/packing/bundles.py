"""Writes the bundles of these tests: `python -m tests.packing.bundles FOLDER`.

A process of its own, as `tests.support.build` is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import lax
from tests.packing.settings import BATCH_SIZES, COSTS, STEPS_OF_A_MILLISECOND, WEIGHTS, WIDTH, times_one
from tests.support.build import Fixture, Program, Tensors

from reactant_export import TensorDecl


def _program(milliseconds: float) -> Program:
    """Y = X, after as many dependent steps as `times_one` says of this number of rows."""
    steps = milliseconds * STEPS_OF_A_MILLISECOND

    def program(x: Tensors, w: Tensors) -> Tensors:
        first = x["X"][0, 0] * 0 + (w["W"][0] if "W" in w else 0)
        number = round(steps * times_one(x["X"].shape[0]))
        last = lax.fori_loop(0, number, lambda _, v: jnp.sin(v + 1), first)
        # A sine is never above 2, which the compiler does not know.
        return {"Y": jnp.where(last > 2, last, x["X"])}

    return program


def fixture(milliseconds: float, weight_bytes: int = 0) -> Fixture:
    """A model that takes X FP32[-1,4] and gives it back, when its time is up."""
    return Fixture(
        _program(milliseconds),
        [TensorDecl("X", "f32", "nk", {"k": WIDTH})],
        [TensorDecl("Y", "f32", "nk", {"k": WIDTH})],
        batch_sizes=BATCH_SIZES if not weight_bytes else (1,),
        weights={"W": np.zeros(weight_bytes // 4, np.float32)} if weight_bytes else None,
        idempotent=True,
    )


def main() -> None:
    """Writes every bundle below the folder given: the catalogue, and those with weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    for name, milliseconds in COSTS.items():
        fixture(milliseconds).write(folder / "catalogue" / name)
    for name, size in WEIGHTS.items():
        fixture(1.0, size).write(folder / "heavy" / name)


if __name__ == "__main__":
    main()
