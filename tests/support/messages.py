"""ModelInfer requests, well-formed and not."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from reactant_core.bundle.dtypes import BY_KSERVE, by_numpy
from reactant_proto import inference_pb2 as pb

Parameter = bool | int | str | float


@final
@dataclass(frozen=True, slots=True)
class Uint:
    """A parameter to send as uint64_param, where a plain int goes as int64_param."""

    value: int


@final
@dataclass(frozen=True, slots=True)
class Input:
    """One input as it goes on the wire: nothing of it needs to fit together.

    Attributes:
        raw: its entry of raw_input_contents; None adds no entry.
        typed: fields of its `contents`; None leaves `contents` out.
    """

    name: str
    datatype: str
    shape: Sequence[int]
    raw: bytes | None = None
    typed: Mapping[str, Sequence[Any]] | None = None
    parameters: Mapping[str, Parameter | Uint] = field(default_factory=dict)


def tensor(name: str, array: NDArray[Any]) -> Input:
    """`array` as a raw input; object arrays of bytes become BYTES."""
    if array.dtype == np.object_:
        return Input(name, "BYTES", array.shape, raw=framed(array.ravel()))
    dtype = by_numpy(array.dtype)
    assert dtype is not None
    return Input(name, dtype.kserve, array.shape, raw=array.astype(dtype.numpy).tobytes())


def infer(
    model: str,
    *inputs: Input,
    outputs: Iterable[str] = (),
    extra_raw: Iterable[bytes] = (),
    version: str = "",
    id: str = "",  # noqa: A002 (the field's name)
    parameters: Mapping[str, Parameter | Uint] | None = None,
    output_parameters: Mapping[str, Parameter | Uint] | None = None,
) -> pb.ModelInferRequest:
    """A request with exactly these parts."""
    request = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    fill(request.parameters, parameters or {})
    for given in inputs:
        sent = request.inputs.add(name=given.name, datatype=given.datatype, shape=given.shape)
        fill(sent.parameters, given.parameters)
        if given.typed is not None:
            sent.contents.SetInParent()
            for name, values in given.typed.items():
                getattr(sent.contents, name).extend(values)
        if given.raw is not None:
            request.raw_input_contents.append(given.raw)
    request.raw_input_contents.extend(extra_raw)
    for name in outputs:
        fill(request.outputs.add(name=name).parameters, output_parameters or {})
    return request


def fill(target: Any, parameters: Mapping[str, Parameter | Uint]) -> None:
    """Writes parameters, each by the field its Python type stands for."""
    for key, value in parameters.items():
        match value:
            case Uint():
                target[key].uint64_param = value.value
            case bool():
                target[key].bool_param = value
            case int():
                target[key].int64_param = value
            case float():
                target[key].double_param = value
            case str():
                target[key].string_param = value


def framed(elements: Iterable[bytes]) -> bytes:
    """BYTES elements as they lie in a raw tensor."""
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def text(*elements: bytes) -> NDArray[Any]:
    """A one-dimensional BYTES array."""
    array = np.empty(len(elements), np.object_)
    array[:] = list(elements)
    return array


def arrays(response: pb.ModelInferResponse) -> dict[str, NDArray[Any]]:
    """The outputs of a response by name, in its order. Demands one raw slot each, of the right length."""
    assert len(response.raw_output_contents) == len(response.outputs)
    found: dict[str, NDArray[Any]] = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        assert output.name not in found
        shape = tuple(output.shape)
        if output.datatype == "BYTES":
            found[output.name] = unframed(raw).reshape(shape)
        else:
            found[output.name] = np.frombuffer(raw, BY_KSERVE[output.datatype].numpy).reshape(shape)
    return found


def unframed(raw: bytes) -> NDArray[Any]:
    """The elements of a raw BYTES tensor."""
    elements, position = [], 0
    while position < len(raw):
        (length,) = struct.unpack_from("<I", raw, position)
        position += 4
        assert position + length <= len(raw)
        elements.append(raw[position : position + length])
        position += length
    return text(*elements)


def floats(rows: int = 1, width: int = 4, start: float = 0.0) -> NDArray[Any]:
    """FP32 [rows, width] with a different value in every place."""
    return np.arange(start, start + rows * width, dtype=np.float32).reshape(rows, width)


def echo(rows: int = 1, *, model: str = "echo", start: float = 1.0, **parts: Any) -> pb.ModelInferRequest:
    """A sound request of a model that takes X FP32[-1,4]."""
    return infer(model, tensor("X", floats(rows, start=start)), **parts)


def slow(steps: int, *, start: float = 1.0, **parts: Any) -> pb.ModelInferRequest:
    """A request of `slow` that keeps the device busy for so many steps."""
    return infer(
        "slow",
        tensor("X", floats(1, start=start)),
        tensor("steps", np.array([[steps]], np.int32)),
        **parts,
    )


def slow_hook(
    seconds: float,
    *,
    id: str = "",  # noqa: A002
    parameters_too: Mapping[str, Parameter | Uint] | None = None,
) -> pb.ModelInferRequest:
    """A request of `slow_hook` whose hook sleeps."""
    parameters = {"seconds": float(seconds), **(parameters_too or {})}
    return echo(model="slow_hook", id=id, parameters=parameters)
