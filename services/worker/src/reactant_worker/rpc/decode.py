"""Request tensors to numpy arrays: exact checks first, memory second."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.errors import InvalidArgument
from reactant_core.wire import TYPED_FIELDS, unframe_bytes
from reactant_proto import inference_pb2 as pb
from reactant_worker.rpc.regions import Regions, Window

_MAX_BYTES = (1 << 63) - 1
_SAFE_COUNT = 1 << 32
"""So many elements of whatever type are less."""


def decode_inputs(
    model: str, request: pb.ModelInferRequest, specs: Mapping[str, TensorSpec], regions: Regions
) -> dict[str, NDArray[Any]]:
    """Checks every input of a request against `specs` and returns name → array.

    Arrays view the request's bytes where that is possible and are read-only then; BYTES tensors
    are object arrays of `bytes`. Raises InvalidArgument naming the model and the tensor, ModelNotFound
    for a shared-memory region that is not registered.
    """
    raw = request.raw_input_contents
    entries = len(raw)
    arrays: dict[str, NDArray[Any]] = {}
    inline = 0
    for tensor in request.inputs:
        name = tensor.name
        spec = specs.get(name)
        if spec is None:
            raise InvalidArgument(_unexpected(model, name, specs))
        if name in arrays:
            raise InvalidArgument(f"model '{model}': input '{name}' is given twice")
        window = None
        if tensor.parameters:
            window = regions.window(f"model '{model}': input '{name}': ", tensor.parameters)
        try:
            shape, count = _check_shape(tensor, spec)
            if window is not None:
                arrays[name] = _from_window(tensor, window, spec, shape, count)
                continue
            if entries:
                if tensor.HasField("contents"):
                    raise InvalidArgument("has typed contents beside raw_input_contents; use one of the two")
                if inline >= entries:
                    raise InvalidArgument(f"has no entry among {entries} raw_input_contents")
                arrays[name] = _from_raw(raw[inline], spec, shape, count)
            else:
                arrays[name] = _from_typed(tensor, spec, shape, count)
            inline += 1
        except InvalidArgument as error:
            raise InvalidArgument(f"model '{model}': input '{name}' {error.message}") from None
    if entries and entries != inline:
        raise InvalidArgument(
            f"model '{model}': {entries} raw_input_contents for {inline} inputs; "
            "raw contents need exactly one entry per input that is not in shared memory"
        )
    if len(arrays) != len(specs):
        missing = ", ".join(f"'{name}'" for name in specs if name not in arrays)
        raise InvalidArgument(f"model '{model}': missing input {missing}")
    return arrays


def _unexpected(model: str, name: str, specs: Mapping[str, TensorSpec]) -> str:
    accepted = ", ".join(f"'{n}'" for n in specs) or "none"
    if not name:
        return f"model '{model}': an input has an empty name; inputs are {accepted}"
    return f"model '{model}': unexpected input '{name}'; inputs are {accepted}"


def _check_shape(
    tensor: pb.ModelInferRequest.InferInputTensor, spec: TensorSpec
) -> tuple[tuple[int, ...], int]:
    """The shape of a tensor that fits `spec`, and its number of elements."""
    if tensor.datatype != spec.dtype.kserve:
        raise InvalidArgument(f"has datatype '{tensor.datatype}', expected {spec.dtype.kserve}")
    shape = tuple(tensor.shape)
    dims = spec.dims
    if len(shape) != len(dims):
        raise InvalidArgument(f"has shape {list(shape)}, expected {len(dims)} axes {list(dims)}")
    for axis, size in enumerate(shape):
        expected = dims[axis]
        if size < 0 or expected not in (-1, size):
            problem = "is negative" if size < 0 else "differs"
            raise InvalidArgument(f"has shape {list(shape)}, expected {list(dims)}: axis {axis} {problem}")
    count = math.prod(shape)
    if not 0 < count < _SAFE_COUNT:
        # numpy counts the elements of the other axes even where one is 0.
        elements = count or math.prod(size for size in shape if size)
        if elements * max(spec.dtype.itemsize, 1) > _MAX_BYTES:
            raise InvalidArgument(f"has shape {list(shape)}, which is more than 2^63 bytes")
    return shape, count


def _from_window(
    tensor: pb.ModelInferRequest.InferInputTensor,
    window: Window,
    spec: TensorSpec,
    shape: tuple[int, ...],
    count: int,
) -> NDArray[Any]:
    if tensor.HasField("contents"):
        raise InvalidArgument("has typed contents and a shared-memory region; use one of the two")
    expected = count * spec.dtype.itemsize
    if spec.dtype.kserve != "BYTES" and window.size != expected:
        # Before anything is read.
        raise InvalidArgument(
            f"has {window.size} bytes of shared memory, shape {list(shape)} takes {expected}"
        )
    return _from_raw(window.read(), spec, shape, count)


def _from_raw(raw: bytes, spec: TensorSpec, shape: tuple[int, ...], count: int) -> NDArray[Any]:
    dtype = spec.dtype
    kserve = dtype.kserve
    if kserve == "BYTES":
        try:
            return _objects(unframe_bytes(raw, count), shape)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
    expected = count * dtype.itemsize
    if len(raw) != expected:
        raise InvalidArgument(f"has {len(raw)} raw bytes, shape {list(shape)} takes {expected}")
    if kserve == "BOOL":
        return np.not_equal(np.frombuffer(raw, np.uint8), 0).reshape(shape)
    return np.ndarray(shape, dtype.numpy, raw)


def _objects(elements: Sequence[bytes], shape: tuple[int, ...]) -> NDArray[Any]:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array.reshape(shape)


def _from_typed(
    tensor: pb.ModelInferRequest.InferInputTensor, spec: TensorSpec, shape: tuple[int, ...], count: int
) -> NDArray[Any]:
    kserve = spec.dtype.kserve
    field = TYPED_FIELDS.get(kserve)
    present = [f.name for f, _ in tensor.contents.ListFields()]
    if field is None:
        if count == 0 and not present:
            return np.empty(shape, spec.dtype.numpy)
        raise InvalidArgument(f"is {kserve}, which has no typed contents; send it in raw_input_contents")
    if present and present != [field]:
        raise InvalidArgument(f"is {kserve} and takes {field}, not {', '.join(present)}")
    values: Sequence[Any] = getattr(tensor.contents, field)
    if len(values) != count:
        raise InvalidArgument(f"has {len(values)} values in {field}, shape {list(shape)} takes {count}")
    if kserve == "BYTES":
        return _objects(list(values), shape)
    if kserve in ("INT8", "INT16", "UINT8", "UINT16"):
        bounds = np.iinfo(spec.dtype.numpy)
        wide = np.array(values, np.int64)
        if wide.size and (wide.min() < bounds.min or wide.max() > bounds.max):
            raise InvalidArgument(f"has values outside {kserve} ({bounds.min} to {bounds.max})")
        return wide.astype(spec.dtype.numpy).reshape(shape)
    return np.array(values, spec.dtype.numpy).reshape(shape)
