"""Writes the search bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reactant_export import TensorDecl, export_meta


def write(path: Path, provenance: Mapping[str, object]) -> None:
    """Write the bundle to `path`: a manifest and `model.py`, for which `minilm` has to be served too."""
    export_meta(
        Path(__file__).with_name("model.py"),
        # A meta has no batch axis: the number of passages is an axis like any other.
        inputs=[
            TensorDecl("query", "bytes", "q", {"q": 1}),
            TensorDecl("passages", "bytes", "p", {"p": -1}),
        ],
        outputs=[
            TensorDecl("order", "i32", "p", {"p": -1}),
            TensorDecl("scores", "f32", "p", {"p": -1}),
        ],
        calls=["minilm"],
        path=path,
        idempotent=True,
        provenance=provenance,
    )
