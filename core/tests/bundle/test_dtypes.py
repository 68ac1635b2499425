from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from reactant_core.bundle.dtypes import BY_KSERVE, BY_TOKEN, WEIGHTS, by_numpy, weight_by_numpy


@pytest.mark.parametrize(
    ("token", "kserve", "mlir", "itemsize"),
    [
        ("bool", "BOOL", "i1", 1),
        ("i8", "INT8", "i8", 1),
        ("i16", "INT16", "i16", 2),
        ("i32", "INT32", "i32", 4),
        ("i64", "INT64", "i64", 8),
        ("u8", "UINT8", "ui8", 1),
        ("u16", "UINT16", "ui16", 2),
        ("u32", "UINT32", "ui32", 4),
        ("u64", "UINT64", "ui64", 8),
        ("f16", "FP16", "f16", 2),
        ("bf16", "BF16", "bf16", 2),
        ("f32", "FP32", "f32", 4),
        ("f64", "FP64", "f64", 8),
        ("bytes", "BYTES", "", 0),
    ],
)
def test_names_and_size_of_each_dtype(token: str, kserve: str, mlir: str, itemsize: int) -> None:
    dtype = BY_TOKEN[token]
    assert BY_KSERVE[kserve] is dtype
    assert (dtype.mlir, dtype.itemsize) == (mlir, itemsize)
    assert by_numpy(dtype.numpy) is dtype
    if token != "bytes":
        assert dtype.numpy.itemsize == itemsize
        assert WEIGHTS[dtype.safetensors or ""] is dtype


def test_there_is_no_other_dtype() -> None:
    assert len(BY_TOKEN) == len(BY_KSERVE) == 14
    assert len(WEIGHTS) == 15


def test_byte_order_is_disregarded() -> None:
    assert by_numpy(np.dtype(">f4")) is BY_TOKEN["f32"]


@pytest.mark.parametrize("dtype", ["S3", "U3", "c8", "M8[s]", "V4", [("a", "f4")]])
def test_numpy_types_without_a_counterpart(dtype: object) -> None:
    assert by_numpy(np.dtype(dtype)) is None  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("numpy_type", "mlir", "token"),
    [
        (ml_dtypes.float8_e4m3fn, "f8E4M3FN", "F8_E4M3"),
        (ml_dtypes.float8_e5m2, "f8E5M2", "F8_E5M2"),
    ],
)
def test_f8_is_for_weights_only(numpy_type: type, mlir: str, token: str) -> None:
    dtype = weight_by_numpy(np.dtype(numpy_type))
    assert dtype is not None
    assert (dtype.mlir, dtype.safetensors, dtype.itemsize) == (mlir, token, 1)
    assert by_numpy(np.dtype(numpy_type)) is None
