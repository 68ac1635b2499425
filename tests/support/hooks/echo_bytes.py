"""BYTES elements of at most 64 bytes through a program that has no strings: packed, run, unpacked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 64


def preprocess(inputs: dict[str, NDArray[Any]], request: Any) -> dict[str, NDArray[Any]]:
    elements = inputs["text"]
    assert elements.dtype == np.object_, elements.dtype
    data = np.zeros((len(elements), LONGEST), np.uint8)
    length = np.zeros(len(elements), np.int32)
    for index, element in enumerate(elements):
        assert type(element) is bytes, type(element)
        if len(element) > LONGEST:
            request.invalid(f"text[{index}]: {len(element)} bytes, at most {LONGEST} are accepted")
        data[index, : len(element)] = np.frombuffer(element, np.uint8)
        length[index] = len(element)
    return {"data": data, "length": length}


def postprocess(outputs: dict[str, NDArray[Any]], request: Any) -> dict[str, Any]:
    data, length = outputs["data_out"], outputs["length_out"]
    elements = np.empty(len(length), np.object_)
    for index, count in enumerate(length):
        elements[index] = data[index, :count].tobytes()
    return {"echo": _as(request.parameters.get("as", "bytes"), elements)}


def _as(kind: object, elements: NDArray[Any]) -> Any:
    """What hooks give instead of an object array of bytes."""
    if kind == "S":
        return np.array(list(elements), dtype="S64")
    if kind == "U":
        return np.array([element.decode() for element in elements])
    if kind == "ints":
        elements[:] = [len(element) for element in elements]
    if kind == "none":
        elements[:] = None
    return elements
