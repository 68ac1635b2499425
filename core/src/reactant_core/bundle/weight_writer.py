"""Writing `weights.safetensors`."""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from reactant_core.bundle.dtypes import WEIGHTS, DType, weight_by_numpy
from reactant_core.bundle.errors import FaultList, shown
from reactant_core.bundle.safetensors_header import MAX_RANK, MAX_TENSORS

DATA_ALIGNMENT: Final = 64
_LENGTH_BYTES: Final = 8
_Array = np.ndarray[Any, Any]


def write_weights(path: Path, arrays: Mapping[str, _Array], argument_order: Sequence[str]) -> None:
    """Writes weights so that a reader sees the whole file or none of it.

    The data begin at a multiple of 64 bytes, and tensors are sorted by item size, largest first,
    so that each is aligned to its item size although the format allows no gaps.

    Args:
        path: the file; one that exists is replaced.
        arrays: weights by name, any memory layout and byte order.
        argument_order: their names in the order programs take them.

    Raises:
        BundleError: with every fault: an unsupported dtype, an empty name, an order that is no
            permutation of the names, too many tensors or axes.
        OSError: when the file cannot be written.
    """
    dtypes = _checked(arrays, argument_order)
    names = sorted(argument_order, key=lambda name: -dtypes[name].itemsize)
    header: dict[str, Any] = {"__metadata__": {"argument_order": json.dumps(list(argument_order))}}
    offset = 0
    for name in names:
        end = offset + arrays[name].size * dtypes[name].itemsize
        header[name] = {
            "dtype": dtypes[name].safetensors,
            "shape": list(arrays[name].shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + _LENGTH_BYTES) % DATA_ALIGNMENT)

    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # Not tempfile: its files are readable by their owner alone, and stay so after the rename.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(len(text).to_bytes(_LENGTH_BYTES, "little"))
            file.write(text)
            for name in names:
                _write_array(file, arrays[name], dtypes[name])
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_array(file: BinaryIO, array: _Array, dtype: DType) -> None:
    if array.size:
        ordered = np.ascontiguousarray(array, dtype=dtype.numpy)
        file.write(ordered.reshape(-1).view(np.uint8).data)


def _checked(arrays: Mapping[str, _Array], argument_order: Sequence[str]) -> dict[str, DType]:
    faults = FaultList()
    dtypes: dict[str, DType] = {}
    for name, array in arrays.items():
        dtype = weight_by_numpy(array.dtype)
        if not name or name == "__metadata__":
            faults.add(f"{shown(name)} cannot be a weight's name")
        if dtype is None:
            faults.add(
                f"weight {shown(name)} has dtype {array.dtype}; accepted: "
                f"{', '.join(sorted(d.numpy.name for d in WEIGHTS.values()))}"
            )
        elif array.ndim > MAX_RANK:
            faults.add(f"weight {shown(name)} has {array.ndim} axes; at most {MAX_RANK} are accepted")
        else:
            dtypes[name] = dtype
    if len(arrays) > MAX_TENSORS:
        faults.add(f"{len(arrays)} weights; at most {MAX_TENSORS} fit in a file")
    if sorted(argument_order) != sorted(arrays):
        times = Counter(argument_order)
        for name in sorted(times.keys() | arrays.keys()):
            if name not in arrays:
                faults.add(f"argument_order lists {shown(name)}, which is not among the weights")
            elif times[name] != 1:
                faults.add(f"argument_order must list {shown(name)} once, not {times[name]} times")
    faults.raise_if_any()
    return dtypes
