"""MLIR element types and the numpy types JAX gives them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

NUMPY_TYPES: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType(
    {
        "i1": np.dtype(np.bool_),
        "i8": np.dtype(np.int8),
        "i16": np.dtype(np.int16),
        "i32": np.dtype(np.int32),
        "i64": np.dtype(np.int64),
        "ui8": np.dtype(np.uint8),
        "ui16": np.dtype(np.uint16),
        "ui32": np.dtype(np.uint32),
        "ui64": np.dtype(np.uint64),
        "f16": np.dtype(np.float16),
        "bf16": np.dtype(ml_dtypes.bfloat16),
        "f32": np.dtype(np.float32),
        "f64": np.dtype(np.float64),
        "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
        "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    }
)
"""Element types that arguments and results of a program may have."""
