"""What both ends of the wire know of a tensor's bytes: typed fields and the framing of BYTES."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

TYPED_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BOOL": "bool_contents",
        "INT8": "int_contents",
        "INT16": "int_contents",
        "INT32": "int_contents",
        "INT64": "int64_contents",
        "UINT8": "uint_contents",
        "UINT16": "uint_contents",
        "UINT32": "uint_contents",
        "UINT64": "uint64_contents",
        "FP32": "fp32_contents",
        "FP64": "fp64_contents",
        "BYTES": "bytes_contents",
    }
)
"""Datatype to the field of InferTensorContents that carries it; FP16 and BF16 have none and go raw."""

_LENGTH = struct.Struct("<I")


def frame_bytes(elements: Iterable[bytes]) -> bytes:
    """Raw contents of a BYTES tensor: each element after its length, a little-endian uint32."""
    parts: list[bytes] = []
    for element in elements:
        parts += (_LENGTH.pack(len(element)), element)
    return b"".join(parts)


def unframe_bytes(raw: bytes, count: int) -> list[bytes]:
    """The `count` elements of a BYTES tensor.

    Raises:
        ValueError: as a phrase that follows the tensor's name; before anything of size `count` exists.
    """
    if count * _LENGTH.size > len(raw):
        raise ValueError(f"has {len(raw)} raw bytes, too few for {count} BYTES elements")
    elements: list[bytes] = []
    position = 0
    for index in range(count):
        if position + _LENGTH.size > len(raw):
            raise ValueError(f"ends after {index} of {count} BYTES elements")
        (length,) = _LENGTH.unpack_from(raw, position)
        position += _LENGTH.size
        if length > len(raw) - position:
            raise ValueError(f"BYTES element {index} claims {length} bytes, {len(raw) - position} are left")
        elements.append(raw[position : position + length])
        position += length
    if position != len(raw):
        raise ValueError(f"has {len(raw) - position} stray bytes after {count} BYTES elements")
    return elements
