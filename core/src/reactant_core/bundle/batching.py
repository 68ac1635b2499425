"""Reading the two keys that multiply a model's programs: batch sizes and input-shape variants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from reactant_core.bundle.errors import FaultList, instead, shown
from reactant_core.bundle.tensor_reader import MAX_SIZE, is_size, unknown_keys
from reactant_core.bundle.tensors import TensorSpec, concrete_shape

MAX_PROGRAMS: Final = 4_096
"""Batch sizes times variants: what a manifest of the permitted size can ask for would never end."""


def read_batch_sizes(faults: FaultList, version: str, batching: object) -> tuple[int, ...] | None:
    """The sizes, ascending; empty without the key, None when they are not sound."""
    if batching is None:
        return ()
    if not isinstance(batching, dict):
        faults.add(f"batching: must be a mapping with the key compiled_batch_sizes{instead(batching)}")
        return None
    unknown_keys(faults, batching, ("compiled_batch_sizes",), "batching")
    where = "batching.compiled_batch_sizes"
    listed = batching.get("compiled_batch_sizes")
    if listed == [] and version == "2":
        return ()  # what its writer puts for a program without batch axes
    if not isinstance(listed, list) or not listed:
        faults.add(f"{where}: must be a list of at least one size{instead(listed)}")
        return None
    sizes: set[int] = set()
    for size in listed:
        if not is_size(size):
            faults.add(f"{where}: {shown(size)} is not a size of at least 1")
        elif size in sizes:
            faults.add(f"{where}: {shown(size)} is listed twice")
        else:
            sizes.add(size)
    return tuple(sorted(sizes)) if len(sizes) == len(listed) else None


def checked_batching(
    faults: FaultList,
    version: str,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    sizes: tuple[int, ...] | None,
) -> tuple[int, ...]:
    """Whether batch axes and batch sizes go together; returns the sizes programs exist for."""
    if any(tensor.batch_axis is not None for tensor in inputs):
        if sizes == ():
            faults.add("batching: missing; inputs with a batch axis need batching.compiled_batch_sizes")
        return sizes or ()
    # Version 2 also has the size 1 where nothing has a batch axis.
    if sizes and not (version == "2" and sizes == (1,)):
        faults.add("batching: no executable input has a batch axis (n or b), so there is nothing to batch")
    for tensor in outputs:
        if tensor.batch_axis is not None:
            faults.add(f"executable_outputs: {shown(tensor.name)} has a batch axis, but no input has one")
    return ()


def read_variants(
    faults: FaultList, value: object, inputs: tuple[TensorSpec, ...]
) -> tuple[Mapping[str, int], ...]:
    variable = {
        spec.axes[axis]: f"executable_inputs: {shown(spec.name)}"
        for spec in inputs
        for axis in spec.variable_axes
    }
    if value is None:
        value = []
    if not isinstance(value, list):
        faults.add(f"input_shapes: must be a list of mappings of axis letters to sizes{instead(value)}")
        return ()
    if not value:
        for letter, where in variable.items():
            faults.add(f"{where}: axis {letter} is variable (-1), but input_shapes lists no sizes for it")
        return ()
    if not variable:
        faults.add("input_shapes: no executable input has a variable axis (-1 in its dims)")
        return ()
    variants: list[Mapping[str, int]] = []
    seen: dict[tuple[tuple[str, int], ...], int] = {}
    for index, entry in enumerate(value):
        variant = _read_variant(faults, f"input_shapes[{index}]", entry, variable)
        if variant is None:
            continue
        first = seen.setdefault(tuple(sorted(variant.items())), index)
        if first != index:
            faults.add(f"input_shapes[{index}]: is the same as input_shapes[{first}]")
        variants.append(MappingProxyType(variant))
    return tuple(variants)


def check_extent(
    faults: FaultList,
    tensors: Sequence[TensorSpec],
    sizes: tuple[int, ...] | None,
    variants: tuple[Mapping[str, int], ...],
) -> None:
    """Refuses more programs than anyone compiles, and tensors that no memory can hold."""
    count = max(len(sizes or ()), 1) * max(len(variants), 1)
    if count > MAX_PROGRAMS:
        faults.add(f"batching and input_shapes ask for {count} programs; at most {MAX_PROGRAMS} are accepted")
    largest: dict[str, int] = {}
    for variant in variants:
        for letter, size in variant.items():
            largest[letter] = max(size, largest.get(letter, 0))
    for spec in tensors:
        shape = concrete_shape(spec, max(sizes or (1,)), largest)
        if math.prod(size for size in shape if size > 0) * max(spec.dtype.itemsize, 1) > MAX_SIZE:
            faults.add(f"{shown(spec.name)}: would take 2^63 bytes or more at its largest")


def _read_variant(
    faults: FaultList, where: str, entry: object, variable: Mapping[str, str]
) -> dict[str, int] | None:
    if not isinstance(entry, dict):
        faults.add(f"{where}: must be a mapping of axis letters to sizes{instead(entry)}")
        return None
    sound = True
    for letter, size in entry.items():
        if letter not in variable:
            faults.add(f"{where}: {shown(letter)} is no variable axis of an executable input")
            sound = False
        elif not is_size(size):
            faults.add(f"{where}.{letter}: must be a size of at least 1{instead(size)}")
            sound = False
    missing = [letter for letter in variable if letter not in entry]
    if missing:
        faults.add(f"{where}: has no size for axis {', '.join(missing)}")
        sound = False
    return dict(entry) if sound else None
