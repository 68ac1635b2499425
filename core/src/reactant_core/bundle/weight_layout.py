"""Whether a weight file's header and its bytes go together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from reactant_core.bundle.dtypes import WEIGHTS
from reactant_core.bundle.errors import FaultList, shown
from reactant_core.bundle.safetensors_header import Header, HeaderEntry

_MAX_BYTES: Final = (1 << 63) - 1


@final
@dataclass(frozen=True, slots=True)
class WeightTensor:
    """Where one weight lies.

    Attributes:
        name: its name in the file.
        dtype: element type.
        shape: sizes as a program takes them, row-major; may hold zeros.
        offset: first byte, counted from the start of the file; not aligned in general.
        nbytes: product of the shape times the item size.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def placed(faults: FaultList, entries: Mapping[str, HeaderEntry], start: int) -> dict[str, WeightTensor]:
    """The tensors whose declaration is sound in itself."""
    placed: dict[str, WeightTensor] = {}
    for name, entry in entries.items():
        dtype = WEIGHTS.get(entry.dtype)
        if dtype is None:
            faults.add(
                f"tensor {shown(name)} has dtype {shown(entry.dtype)}; accepted: {', '.join(sorted(WEIGHTS))}"
            )
            continue
        # numpy refuses a shape whose sizes other than zero overflow, even when another one is zero.
        if math.prod(size for size in entry.shape if size) * dtype.itemsize > _MAX_BYTES:
            faults.add(f"tensor {shown(name)} has a shape of more than 2^63 bytes")
            continue
        nbytes = math.prod(entry.shape) * dtype.itemsize
        if entry.end - entry.begin != nbytes:
            faults.add(
                f"tensor {shown(name)} of {entry.dtype}{list(entry.shape)} takes {nbytes} bytes "
                f"but its data_offsets are [{entry.begin}, {entry.end}]"
            )
            continue
        placed[name] = WeightTensor(name, dtype.numpy, entry.shape, start + entry.begin, nbytes)
    return placed


def check_coverage(faults: FaultList, entries: Mapping[str, HeaderEntry], available: int) -> None:
    """Every byte after the header must belong to exactly one tensor, as the format demands."""
    reached = 0
    previous = ""
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.end < entry.begin:
            continue  # reported as not fitting its shape
        if entry.begin < reached:
            faults.add(f"tensors {shown(previous)} and {shown(name)} overlap")
        elif entry.begin > reached:
            faults.add(f"bytes {reached} to {entry.begin} before tensor {shown(name)} belong to no tensor")
        if entry.end >= reached:
            reached, previous = entry.end, name
    if reached > available:
        faults.add(f"is {reached - available} bytes short of its last tensor; is it still being copied?")
    elif reached < available:
        faults.add(f"has {available - reached} bytes after its last tensor")


def checked_order(faults: FaultList, header: Header) -> tuple[str, ...]:
    order = header.argument_order
    if order is None:
        if header.entries:
            faults.add("__metadata__.argument_order is missing; it is a JSON list of all tensor names")
        return ()
    seen: set[str] = set()
    for name in order:
        if name in seen:
            faults.add(f"argument_order lists {shown(name)} twice")
        elif name not in header.entries:
            faults.add(f"argument_order lists {shown(name)}, which the file does not hold")
        seen.add(name)
    for name in header.entries:
        if name not in seen:
            faults.add(f"argument_order does not list tensor {shown(name)}")
    return order
