"""HTTP/2 frames by hand, sound or not (RFC 9113, section 4; RFC 7541 for headers)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9

END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 0x1, 0x1, 0x4, 0x8, 0x20

HEADER_BYTES: Final = 9

Pairs = Iterable[tuple[bytes, bytes]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", *, length: int | None = None) -> bytes:
    """One frame; `length` is what it says of its payload, when that is to be a lie."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    """SETTINGS with these identifiers and values."""
    return frame(SETTINGS, 0, 0, b"".join(key.to_bytes(2, "big") + v.to_bytes(4, "big") for key, v in pairs))


def ping(payload: bytes) -> bytes:
    """PING with eight bytes."""
    return frame(PING, 0, 0, payload)


def window_update(stream: int, increment: int) -> bytes:
    """WINDOW_UPDATE."""
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def reset(stream: int, code: int = 8) -> bytes:
    """RST_STREAM, CANCEL unless said otherwise."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def integer(value: int, bits: int, first: int = 0) -> bytes:
    """An HPACK integer with a prefix of so many bits behind the pattern `first`."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes((first | value,))
    out = bytearray((first | limit,))
    value -= limit
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def hpack(pairs: Pairs, *, indexed: bool = False) -> bytes:
    """Literal header fields, not Huffman-coded; `indexed` has them entered in the dynamic table."""
    first = (0x40, 6) if indexed else (0x00, 4)
    out = bytearray()
    for name, value in pairs:
        out += integer(0, first[1], first[0])
        out += integer(len(name), 7) + name + integer(len(value), 7) + value
    return bytes(out)


def headers(stream: int, pairs: Pairs, *, flags: int = END_HEADERS) -> bytes:
    """HEADERS with these fields."""
    return frame(HEADERS, flags, stream, hpack(pairs))


def data(stream: int, payload: bytes, *, end: bool = False) -> bytes:
    """DATA."""
    return frame(DATA, END_STREAM if end else 0, stream, payload)


def message(body: bytes, *, flag: int = 0, length: int | None = None) -> bytes:
    """A gRPC message behind its length prefix; `length` when that is to be a lie."""
    size = len(body) if length is None else length
    return bytes((flag,)) + size.to_bytes(4, "big") + body
