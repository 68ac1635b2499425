"""Writes the bundles of these tests: `python -m tests.engine.bundles FOLDER [--programs N]`.

A process of its own, as `tests.support.build` is. `--programs N` adds N bundles whose programs differ, so
that the compiling of none of them spares the next one's.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
from jax import lax
from tests.support.build import Fixture, Program, Tensors

from reactant_export import TensorDecl

HOOKS = Path(__file__).with_name("hooks")

STEPS = 60_000
"""About a millisecond."""
LIGHT, MEDIUM, HEAVY = 3 * STEPS, 10 * STEPS, 30 * STEPS
"""The costs of the models of these names; heavy is ten times light."""
WIDTH = 4


def _steady(steps: int) -> Program:
    """Y = X, after so many dependent steps divided by the rows.

    The device time is the same for every request, and less for a full batch than for a single row: whatever a
    busy machine measures, requests are put together.
    """

    def program(x: Tensors, w: Tensors) -> Tensors:
        last = lax.fori_loop(0, steps // x["X"].shape[0], lambda _, v: jnp.sin(v + 1), x["X"][0, 0] * 0)
        # A sine is never above 2, which the compiler does not know.
        return {"Y": jnp.where(last > 2, last, x["X"])}

    return program


def _sorts(number: int) -> Program:
    """Long to compile and quick to run; every `number` is another program."""

    def program(x: Tensors, w: Tensors) -> Tensors:
        total = x["X"]
        for index in range(8):
            total = jnp.sort(total * (1.0 + index) + number, axis=1, stable=True)[:, ::-1]
            total = jnp.cumsum(jnp.tanh(total), axis=1)
        return {"Y": total}

    return program


def _image(x: Tensors, w: Tensors) -> Tensors:
    return {"copy": x["image"], "total": jnp.sum(x["image"], axis=(1, 2))}


def _vector(width: int) -> tuple[list[TensorDecl], list[TensorDecl]]:
    return [TensorDecl("X", "f32", "nk", {"k": width})], [TensorDecl("Y", "f32", "nk", {"k": width})]


FIXTURES: Mapping[str, Fixture] = {
    "light": Fixture(_steady(LIGHT), *_vector(WIDTH), batch_sizes=(1,)),
    "medium": Fixture(_steady(MEDIUM), *_vector(WIDTH), batch_sizes=(1,)),
    "heavy": Fixture(_steady(HEAVY), *_vector(WIDTH), batch_sizes=(1,)),
    "steady": Fixture(_steady(MEDIUM), *_vector(WIDTH), batch_sizes=(1, 4)),
    # As many values in one shape as in the other: a mix-up would not show in the number of bytes.
    "images": Fixture(
        _image,
        [TensorDecl("image", "f32", "nhw", {"h": -1, "w": -1})],
        [TensorDecl("copy", "f32", "nhw", {"h": -1, "w": -1}), TensorDecl("total", "f32", "n", {})],
        batch_sizes=(1, 2, 4),
        input_shapes=[{"h": 16, "w": 64}, {"h": 64, "w": 16}],
    ),
    "misbehaves": Fixture(lambda x, w: {"Y": x["X"]}, *_vector(WIDTH), hooks=str(HOOKS / "misbehaves.py")),
    "long_setup": Fixture(lambda x, w: {"Y": x["X"]}, *_vector(WIDTH), hooks=str(HOOKS / "long_setup.py")),
}


def main() -> None:
    """Writes every bundle below the folder given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--programs", type=int, default=0)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, fixture in FIXTURES.items():
        fixture.write(folder / name)
    for number in range(arguments.programs):
        fixture = Fixture(_sorts(number), *_vector(256), batch_sizes=(1, 4))
        fixture.write(folder / f"program{number}")


if __name__ == "__main__":
    main()
