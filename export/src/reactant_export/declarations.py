"""What an exporter says about a model: its tensors, and all arguments of an export as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import jax
import numpy as np

Arrays = dict[str, jax.Array]
ModelFunction = Callable[[Arrays, Arrays], Mapping[str, jax.Array]]
"""Takes inputs by name and weights by name, gives outputs by name; traced once per program."""

PLATFORMS = ("cpu", "cuda")
"""What programs can be written for, by JAX's names."""


@final
@dataclass(frozen=True, slots=True)
class TensorDecl:
    """One input or output, as the manifest writes it.

    Attributes:
        name: not empty, unique among its list.
        dtype_token: bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64; for clients also bytes.
        shape: one ASCII letter per axis, row-major; `n` or `b` marks the batch axis.
        dims: size of every other axis by letter; -1 for a variable axis.
    """

    name: str
    dtype_token: str
    shape: str
    dims: Mapping[str, int] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class ExportSpec:
    """The arguments of `export_jax` but for `path` and `verify`: what a function given to the command
    `reactant-export jax` returns."""

    fn: ModelFunction
    weights: Mapping[str, np.ndarray[Any, Any]]
    inputs: Sequence[TensorDecl]
    outputs: Sequence[TensorDecl]
    batch_sizes: Sequence[int] | None = None
    input_shapes: Sequence[Mapping[str, int]] = ()
    client_inputs: Sequence[TensorDecl] | None = None
    client_outputs: Sequence[TensorDecl] | None = None
    hooks: Path | str | None = None
    assets: Sequence[Path | str] = ()
    idempotent: bool | None = None
    internal: bool = False
    provenance: Mapping[str, object] | None = None
    matmul_precision: str = "highest"
    platforms: Sequence[str] = PLATFORMS
