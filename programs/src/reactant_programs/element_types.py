"""MLIR element types and the numpy types JAX gives them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from reactant_core.bundle.dtypes import WEIGHTS

NUMPY_TYPES: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType(
    {dtype.mlir: dtype.numpy for dtype in WEIGHTS.values()}
)
"""Element types that arguments and results of a program may have: what a weight can be."""
