"""JSON values and .npy files to arrays that fit a model's declared tensor."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from reactant_cli.codec import Array
from reactant_cli.shown import cut, shown
from reactant_core.bundle.dtypes import DType, by_numpy

_INTEGERS = "iu"
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


@final
@dataclass(frozen=True, slots=True)
class TensorDecl:
    """A tensor as a server declares it; -1 in `shape` takes any length."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.kserve}{list(self.shape)}"


def array_from_json(value: Any, decl: TensorDecl) -> Array:
    """Nested lists, numbers, booleans or strings as an array for `decl`.

    BYTES take strings (as UTF-8) or `{"b64": "…"}`. A missing leading variable axis is added, and a
    flat list is brought into a shape with at most one variable axis.

    Raises:
        ValueError: ragged lists, an element of another type or out of range, or a shape that does not fit.
    """
    flat: list[Any] = []
    shape = _flatten(value, flat, "", 0)
    return fit(_typed(flat, decl.dtype).reshape(shape), decl)


def array_from_file(path: Path, decl: TensorDecl) -> Array:
    """The array in a `.npy` file, for `decl`.

    Raises:
        ValueError: not a readable .npy file, or its dtype or shape does not fit.
    """
    try:
        with path.open("rb") as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise ValueError(f"{cut(str(path))}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{cut(str(path))} is not a .npy file that can be read: {error}") from None
    return fit(_converted(array, decl.dtype), decl)


def fit(array: Array, decl: TensorDecl) -> Array:
    """`array` in a shape that `decl` takes.

    Raises:
        ValueError: it cannot be brought into one.
    """
    if _matches(array.shape, decl.shape):
        return array
    if decl.shape[:1] == (-1,) and _matches(array.shape, decl.shape[1:]):
        return array.reshape((1, *array.shape))
    if array.ndim <= 1 and decl.shape.count(-1) <= 1:
        fixed = math.prod(n for n in decl.shape if n != -1)
        if (-1 in decl.shape and fixed and array.size % fixed == 0) or array.size == fixed:
            return array.reshape(decl.shape)
    if array.ndim == 1 and -1 not in decl.shape:
        raise ValueError(f"{decl}: {math.prod(decl.shape)} values expected, got {array.size}")
    raise ValueError(f"shape {list(array.shape)} does not fit {decl}")


def _matches(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(
        want in (-1, have) for have, want in zip(shape, declared, strict=True)
    )


def _flatten(value: Any, flat: list[Any], where: str, depth: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        flat.append(value)
        return ()
    if depth >= 32:
        raise ValueError("lists are nested more than 32 deep")
    inner: tuple[int, ...] | None = None
    for index, item in enumerate(value):
        shape = _flatten(item, flat, f"{where}[{index}]", depth + 1)
        if inner is not None and shape != inner:
            raise ValueError(
                f"ragged: {where}[{index}] has shape {list(shape)}, those before it {list(inner)}"
            )
        inner = shape
    return (len(value), *(inner or ()))


def _typed(flat: list[Any], dtype: DType) -> Array:
    convert: Callable[[Any, int, DType], Any] = _CONVERT.get(dtype.numpy.kind, _real)
    values = [convert(item, index, dtype) for index, item in enumerate(flat)]
    if dtype.numpy.kind in _INTEGERS + "bO":
        array = np.empty(len(values), dtype=dtype.numpy)
        array[:] = values
        return array
    return _narrowed(np.asarray(values, np.float64), dtype)


def _boolean(item: Any, index: int, _: DType) -> bool:
    if isinstance(item, bool):
        return item
    raise ValueError(f"element {index} is {shown(item)}, BOOL takes true or false")


def _integer(item: Any, index: int, dtype: DType) -> int:
    limits = np.iinfo(dtype.numpy)
    if isinstance(item, int) and not isinstance(item, bool) and limits.min <= item <= limits.max:
        return item
    raise ValueError(
        f"element {index} is {shown(item)}, {dtype.kserve} takes integers from {limits.min} to {limits.max}"
    )


def _real(item: Any, index: int, dtype: DType) -> float:
    if isinstance(item, str) and item in _NOT_FINITE:
        return float(item)
    if isinstance(item, int | float) and not isinstance(item, bool):
        try:
            return float(item)
        except OverflowError:
            raise ValueError(f"element {index} is too large for {dtype.kserve}") from None
    raise ValueError(f"element {index} is {shown(item)}, {dtype.kserve} takes numbers")


def _bytes(item: Any, index: int, _: DType) -> bytes:
    if isinstance(item, str):
        return item.encode("utf-8", "surrogateescape")
    if isinstance(item, dict) and list(item) == ["b64"] and isinstance(item["b64"], str):
        try:
            return base64.b64decode(item["b64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"element {index} is not base64: {error}") from None
    raise ValueError(f'element {index} is {shown(item)}, BYTES takes strings or {{"b64": "…"}}')


_CONVERT: Mapping[str, Callable[[Any, int, DType], Any]] = {
    "b": _boolean,
    "i": _integer,
    "u": _integer,
    "O": _bytes,
}


def _narrowed(array: Array, dtype: DType) -> Array:
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype.numpy)
    lost = np.isfinite(array) & ~np.isfinite(narrow.astype(np.float64))
    if lost.any():
        index = int(np.flatnonzero(lost)[0])
        raise ValueError(f"element {index} is {array.ravel()[index]:g}, too large for {dtype.kserve}")
    return narrow


def _converted(array: Array, dtype: DType) -> Array:
    target = dtype.numpy
    if target.kind == "O":
        if array.dtype.kind != "U":
            raise ValueError(f"it holds {array.dtype}, BYTES takes an array of str (numpy dtype U)")
        texts = np.empty(array.shape, dtype=object)
        texts.ravel()[:] = [str(item).encode() for item in array.ravel()]
        return texts
    if by_numpy(array.dtype) is dtype:
        return array.astype(target)
    if array.dtype.kind in _INTEGERS and target.kind in _INTEGERS:
        return _typed([int(item) for item in array.ravel()], dtype).reshape(array.shape)
    if array.dtype.kind == "f" and target.kind not in _INTEGERS + "b":
        return _narrowed(array, dtype)
    if array.dtype.kind == "V" and array.dtype == np.dtype((np.void, target.itemsize)) and target.kind == "V":
        # numpy writes the 16-bit floats of ml_dtypes as raw two-byte items.
        return array.view(target)
    raise ValueError(f"it holds {array.dtype}, the model takes {dtype.kserve}; convert it with .astype")
