"""Writes the page reader's bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reactant_examples.digits.pages import PAGE
from reactant_export import TensorDecl, export_meta


def write(path: Path, provenance: Mapping[str, object]) -> None:
    """Write the bundle to `path`; `digit_finder` and `digits` have to be served too."""
    export_meta(
        Path(__file__).with_name("model.py"),
        inputs=[TensorDecl("page", "f32", "hw", {"h": PAGE, "w": PAGE})],
        outputs=[
            TensorDecl("digit", "i32", "d", {"d": -1}),
            TensorDecl("probability", "f32", "d", {"d": -1}),
            TensorDecl("corner", "i32", "dc", {"d": -1, "c": 2}),
        ],
        calls=["digit_finder", "digits"],
        path=path,
        idempotent=True,
        provenance=provenance,
    )
