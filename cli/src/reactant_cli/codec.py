"""Tensors to and from their bytes on the wire: row-major, little-endian, BYTES length-prefixed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.dtypes import DType
from reactant_core.wire import TYPED_FIELDS, frame_bytes, unframe_bytes
from reactant_proto import inference_pb2

Array = NDArray[Any]


def encode(array: Array, dtype: DType) -> bytes:
    """`array` (of `dtype.numpy`, for BYTES an object array of `bytes`) as raw contents."""
    if dtype.kserve == "BYTES":
        return frame_bytes(array.ravel().tolist())
    return np.ascontiguousarray(array, dtype=dtype.numpy).tobytes()


def decode(raw: bytes, dtype: DType, shape: Sequence[int]) -> Array:
    """Raw contents as an array of `shape`, read-only.

    Raises:
        ValueError: the length does not fit the shape, or the BYTES framing is broken.
    """
    count = math.prod(shape)
    if dtype.kserve == "BYTES":
        array = np.empty(count, dtype=object)
        array[:] = unframe_bytes(raw, count)
        return array.reshape(shape)
    if len(raw) != count * dtype.itemsize:
        raise ValueError(f"{len(raw)} bytes for shape {list(shape)}, which needs {count * dtype.itemsize}")
    return np.frombuffer(raw, dtype.numpy).reshape(shape)


def decode_contents(contents: inference_pb2.InferTensorContents, dtype: DType, shape: Sequence[int]) -> Array:
    """Typed contents, which a server may send instead of raw ones, as an array of `shape`.

    Raises:
        ValueError: the dtype has no typed field or the number of values does not fit the shape.
    """
    field = TYPED_FIELDS.get(dtype.kserve)
    if field is None:
        raise ValueError(f"{dtype.kserve} has no typed contents, only raw ones")
    values = list(getattr(contents, field))
    if len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} values for shape {list(shape)}, which has {math.prod(shape)}")
    array = np.empty(len(values), dtype=dtype.numpy)
    array[:] = values
    return array.reshape(shape)
