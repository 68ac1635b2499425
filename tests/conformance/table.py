"""The table of data-plane.md's ModelInfer rules that one request at a time can show."""

from __future__ import annotations

from tests.conformance.rows import batches, contents, hooks, inputs, metas, names, outputs, parameters

TABLE = (
    *names.ROWS,
    *inputs.ROWS,
    *contents.ROWS,
    *batches.ROWS,
    *outputs.ROWS,
    *parameters.ROWS,
    *hooks.ROWS,
    *metas.ROWS,
)
