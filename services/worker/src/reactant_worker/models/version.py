"""A model version with all that it runs on."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import jax

from reactant_programs.compile import Program
from reactant_worker.engine.batch import ProgramSet
from reactant_worker.models.served import ServedModel


@final
@dataclass(frozen=True, slots=True)
class PlacedWeights:
    """A weight set on the device.

    Attributes:
        arrays: in argument order.
        nbytes: of all of them.
        axes_reversed: they are given with the axes of the file in reverse.
    """

    arrays: tuple[jax.Array, ...]
    nbytes: int
    axes_reversed: bool


@final
@dataclass(frozen=True, slots=True)
class Version:
    """One version of a model, ready to serve.

    Attributes:
        model: what requests need of it.
        runnable: its programs over its weights; None for a meta.
        programs: those programs.
        costs: seconds of one execution by (variant, batch size), as measured when it was built.
        weights: None for a bundle without.
    """

    model: ServedModel
    runnable: ProgramSet | None
    programs: tuple[Program, ...]
    costs: Mapping[tuple[int | None, int], float]
    weights: PlacedWeights | None

    def discard(self) -> None:
        """Lets go of a version that is not going to serve."""
        if self.model.hooks is not None:
            self.model.hooks.close()

    def moved(self, path: Path) -> Version:
        """The same version where its bundle is at `path` now, under a key of its own: nothing is loaded."""
        return replace(self, model=self.model.moved(path))


def release(programs: list[Program]) -> None:
    """Drops programs that nothing else holds any more, and what JAX still keeps of their weights. Blocks.

    Each takes the interpreter for some milliseconds, so they go one by one, to let others in between.
    """
    while programs:
        programs.pop()
    # On the CPU JAX reads weights in the host's own arrays, and lets go of those when Python collects.
    gc.collect(0)
