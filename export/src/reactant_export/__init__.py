"""Writes and verifies model bundles."""

from __future__ import annotations

from reactant_export.declarations import ExportSpec, TensorDecl
from reactant_export.from_jax import export_jax, export_spec
from reactant_export.meta import export_meta
from reactant_export.verify import ProgramReport, Report, verify_bundle

__all__ = [
    "ExportSpec",
    "ProgramReport",
    "Report",
    "TensorDecl",
    "export_jax",
    "export_meta",
    "export_spec",
    "verify_bundle",
]
