"""Writes the digit finder's bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reactant_examples.digit_finder.network import PLACES, likeness, template
from reactant_examples.digits.data import split_digits
from reactant_examples.digits.pages import PAGE
from reactant_export import TensorDecl, export_jax

BATCH_SIZES = (1, 8)


def write(path: Path, provenance: Mapping[str, object]) -> None:
    """Write the bundle to `path`; clients do not see the model, metas do."""
    training, _ = split_digits()
    export_jax(
        likeness,
        {"template": template(training)},
        inputs=[TensorDecl("page", "f32", "nhw", {"h": PAGE, "w": PAGE})],
        outputs=[TensorDecl("likeness", "f32", "nyx", {"y": PLACES, "x": PLACES})],
        batch_sizes=BATCH_SIZES,
        path=path,
        internal=True,
        provenance=provenance,
        # The tests run these programs; whoever starts a server the first time need not wait for it too.
        verify=False,
    )
