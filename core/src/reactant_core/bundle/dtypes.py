"""The element types a tensor can have, under each name they go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, final

import ml_dtypes
import numpy as np


@final
@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Attributes:
        token: the name in a manifest, such as `f32`.
        kserve: the datatype in KServe V2 messages, such as `FP32`.
        numpy: the little-endian numpy type; object for `bytes`.
        mlir: the element type as MLIR prints it in a StableHLO signature, such as `f32`, `i1`,
            `ui8`; empty for `bytes`, which XLA does not have.
        safetensors: the name in a safetensors header; None for `bytes`.
        itemsize: bytes per element; 0 for `bytes`, whose elements vary in length.
    """

    token: str
    kserve: str
    numpy: np.dtype[Any]
    mlir: str
    safetensors: str | None
    itemsize: int


def _fixed(token: str, kserve: str, numpy: Any, mlir: str, safetensors: str) -> DType:
    dtype = np.dtype(numpy)
    return DType(token, kserve, dtype, mlir, safetensors, dtype.itemsize)


_ALL: Final = (
    _fixed("bool", "BOOL", np.bool_, "i1", "BOOL"),
    _fixed("i8", "INT8", "<i1", "i8", "I8"),
    _fixed("i16", "INT16", "<i2", "i16", "I16"),
    _fixed("i32", "INT32", "<i4", "i32", "I32"),
    _fixed("i64", "INT64", "<i8", "i64", "I64"),
    _fixed("u8", "UINT8", "<u1", "ui8", "U8"),
    _fixed("u16", "UINT16", "<u2", "ui16", "U16"),
    _fixed("u32", "UINT32", "<u4", "ui32", "U32"),
    _fixed("u64", "UINT64", "<u8", "ui64", "U64"),
    _fixed("f16", "FP16", "<f2", "f16", "F16"),
    _fixed("bf16", "BF16", ml_dtypes.bfloat16, "bf16", "BF16"),
    _fixed("f32", "FP32", "<f4", "f32", "F32"),
    _fixed("f64", "FP64", "<f8", "f64", "F64"),
    DType("bytes", "BYTES", np.dtype(object), "", None, 0),
)

BY_TOKEN: Final[Mapping[str, DType]] = MappingProxyType({d.token: d for d in _ALL})
BY_KSERVE: Final[Mapping[str, DType]] = MappingProxyType({d.kserve: d for d in _ALL})
_BY_NUMPY_NAME: Final = {d.numpy.name: d for d in _ALL}


def by_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The element type of a numpy array, None when there is none (`S`, `U`, complex, structured …).

    Byte order is disregarded: whoever puts a big-endian array on the wire must convert it.
    """
    # By name, since the name carries no byte order and ml_dtypes' types cannot be asked to swap theirs.
    return _BY_NUMPY_NAME.get(dtype.name)


_WEIGHTS_ONLY: Final = (
    _fixed("f8_e4m3", "", ml_dtypes.float8_e4m3fn, "f8E4M3FN", "F8_E4M3"),
    _fixed("f8_e5m2", "", ml_dtypes.float8_e5m2, "f8E5M2", "F8_E5M2"),
)
WEIGHTS: Final[Mapping[str, DType]] = MappingProxyType(
    {d.safetensors: d for d in (*_ALL, *_WEIGHTS_ONLY) if d.safetensors is not None}
)
"""What a weight can be, by its name in a safetensors header: every dtype but `bytes`, and F8."""

_WEIGHT_BY_NUMPY_NAME: Final = {d.numpy.name: d for d in WEIGHTS.values()}


def weight_by_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The element type of a numpy array as a weight, None when there is none; byte order as above."""
    return _WEIGHT_BY_NUMPY_NAME.get(dtype.name)
