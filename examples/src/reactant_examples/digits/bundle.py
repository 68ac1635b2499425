"""Trains the digit classifier and writes its bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reactant_examples.digits.data import CLASSES, SIDE, split_digits
from reactant_examples.digits.network import classify
from reactant_examples.digits.training import accuracy, train
from reactant_export import TensorDecl, export_jax

BATCH_SIZES = (1, 8, 32, 128)


def write(path: Path, provenance: Mapping[str, object]) -> None:
    """Train, and write the bundle to `path`; its provenance holds the accuracy on held-out pictures."""
    training, held_out = split_digits()
    weights = train(training)
    export_jax(
        classify,
        weights,
        inputs=[TensorDecl("image", "f32", "nhw", {"h": SIDE, "w": SIDE})],
        outputs=[TensorDecl("probabilities", "f32", "nk", {"k": CLASSES})],
        batch_sizes=BATCH_SIZES,
        path=path,
        provenance={"held_out_accuracy": round(accuracy(weights, held_out), 4), **provenance},
        # The tests run these programs; whoever starts a server the first time need not wait for it too.
        verify=False,
    )
