"""What routing needs of a ModelInferRequest, read off the wire without decoding the message.

Walks the protobuf encoding (protobuf.dev, "Encoding") from field to field and stops where tensor contents
begin; field numbers are those of proto/inference.proto.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

PEEK_BYTES: Final = 64 * 1024
"""Of a message so much is looked at: within it the model's name must come, which every encoder writes first.

A bound for the time one message can take from the others, too.
"""

# Tags: field number << 3 | wire type.
_MODEL_NAME, _ID, _INPUT, _OUTPUT, _RAW = 0x0A, 0x1A, 0x2A, 0x32, 0x3A
_TENSOR_NAME, _TENSOR_SHAPE, _TENSOR_SHAPE_ONE = 0x0A, 0x1A, 0x18
_PARAMETERS_OF_INPUT, _PARAMETERS_OF_OUTPUT = 0x22, 0x12
_MAP_KEY, _MAP_VALUE, _STRING_PARAM = 0x0A, 0x12, 0x1A
_REGION: Final = b"shared_memory_region"


class Malformed(ValueError):
    """The bytes are no message of this type."""


class Peeked(NamedTuple):
    """What was found.

    Attributes:
        model: `model_name`.
        id: the request's id, not decoded.
        end: where the tensor contents begin, or what was looked at ends.
        regions: shared-memory regions that tensors name.
    """

    model: str
    id: bytes
    end: int
    regions: tuple[str, ...] = ()


def peek(data: bytes, start: int, end: int) -> Peeked | None:  # noqa: PLR0912 (one loop over the fields, hot)
    """Reads the message that lies in `data` from `start` to `end`, of which the tail may be yet to come.

    What is wrong further inside is left to the worker to say.

    Returns:
        None when more bytes are needed; never so with `PEEK_BYTES` at hand.

    Raises:
        Malformed: whatever follows, this is no request.
    """
    have, stop = len(data), start + PEEK_BYTES
    model = request_id = b""
    at, tensors = start, -1
    while at < end:
        if at >= stop and have >= stop:
            if model:
                break
            raise Malformed(f"model_name is not within the first {PEEK_BYTES} bytes")
        if at >= have:
            return None
        tag = data[at]
        if tag == _RAW and model:
            break
        at += 1
        if tag >= 0x80:
            tag, at = _varint(data, at - 1, have)
            if at < 0:
                return None
        if tag & 7 != 2:
            at = _skip(data, at, have, tag & 7)
            if at < 0:
                return None
            continue
        if at >= have:
            return None
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = _varint(data, at - 1, have)
            if at < 0:
                return None
        after = at + size
        if after > end:
            raise Malformed("a field is longer than the message")
        if tag in (_MODEL_NAME, _ID):
            if after > have:
                return None
            if tag == _MODEL_NAME:
                model = data[at:after]
            else:
                request_id = data[at:after]
        elif tensors < 0 and tag in (_INPUT, _OUTPUT):
            tensors = at
        at = after
    if have < min(at, stop):
        # The last field is not all there.
        return None
    seen = min(at, have)
    try:
        name = model.decode()
    except UnicodeDecodeError as error:
        raise Malformed("model_name is not UTF-8") from error
    if tensors >= 0 and data.find(_REGION, tensors, seen) >= 0:
        return Peeked(name, request_id, seen, _regions(data, start, seen))
    return Peeked(name, request_id, seen)


def inflate_prefix(data: bytes, encoding: bytes) -> bytes | None:
    """The beginning of a compressed message, at most `PEEK_BYTES`; None for an unknown encoding.

    Raises:
        Malformed: not that encoding.
    """
    if encoding == b"gzip":
        window = 31
    elif encoding == b"deflate":
        window = 15
    else:
        return None
    try:
        return zlib.decompressobj(window).decompress(data, PEEK_BYTES)
    except zlib.error as error:
        raise Malformed(f"the message is not {encoding.decode()}") from error


def batch_rows(data: bytes, start: int, end: int, tensor: bytes, axis: int) -> int | None:
    """Size of dimension `axis` of the input called `tensor`; None when it is not there.

    `end` is `Peeked.end`, so that everything looked at is there.
    """
    for tag, at, size in _fields(data, start, min(end, len(data))):
        if tag != _INPUT:
            continue
        name, dims = b"", []
        for inner, inner_at, inner_size in _fields(data, at, at + size):
            if inner == _TENSOR_NAME:
                name = data[inner_at : inner_at + inner_size]
            elif inner == _TENSOR_SHAPE:
                dims += _packed(data, inner_at, inner_at + inner_size)
            elif inner == _TENSOR_SHAPE_ONE:
                dims.append(inner_size)
        if name == tensor:
            rows = dims[axis] if axis < len(dims) else None
            return rows if rows is not None and 0 <= rows < 1 << 31 else None
    return None


def _regions(data: bytes, start: int, end: int) -> tuple[str, ...]:
    found: list[str] = []
    for tag, at, size in _fields(data, start, end):
        if tag not in (_INPUT, _OUTPUT):
            continue
        parameters = _PARAMETERS_OF_INPUT if tag == _INPUT else _PARAMETERS_OF_OUTPUT
        for inner, inner_at, inner_size in _fields(data, at, at + size):
            if inner != parameters:
                continue
            entry = {t: (a, n) for t, a, n in _fields(data, inner_at, inner_at + inner_size)}
            key_at, key_size = entry.get(_MAP_KEY, (0, 0))
            if data[key_at : key_at + key_size] != _REGION or _MAP_VALUE not in entry:
                continue
            value_at, value_size = entry[_MAP_VALUE]
            for kind, name_at, name_size in _fields(data, value_at, value_at + value_size):
                if kind == _STRING_PARAM:
                    name = data[name_at : name_at + name_size].decode("utf-8", "replace")
                    if name not in found:
                        found.append(name)
    return tuple(found)


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Tag, place and size of each field up to `end`, the last perhaps cut off; a number as its size."""
    while at < end:
        tag, at = _varint(data, at, end)
        if at < 0:
            return
        kind = tag & 7
        if kind in (0, 2):
            size, value_at = _varint(data, at, end)
            if value_at < 0:
                return
            at = value_at if kind == 0 else min(value_at + size, end)
            yield tag, value_at, size if kind == 0 else at - value_at
        else:
            at = _skip(data, at, end, kind)
            if at < 0:
                return


def _packed(data: bytes, at: int, end: int) -> list[int]:
    values = []
    while at < end:
        value, at = _varint(data, at, end)
        if at < 0:
            break
        values.append(value)
    return values


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and where it ends; -1 when it is cut off.

    Raises:
        Malformed: longer than ten bytes.
    """
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise Malformed("a number is longer than ten bytes")
    return 0, -1


def _skip(data: bytes, at: int, end: int, wire_type: int) -> int:
    """Where a field that is not length-delimited ends; -1 when that is cut off.

    Raises:
        Malformed: groups, which this protocol never had, and unknown wire types.
    """
    if wire_type == 0:
        return _varint(data, at, end)[1]
    if wire_type == 1:
        return at + 8 if at + 8 <= end else -1
    if wire_type == 5:
        return at + 4 if at + 4 <= end else -1
    raise Malformed(f"wire type {wire_type}")
