"""What gRPC puts into HTTP/2 headers: timeouts, statuses, messages and length prefixes.

Source: "gRPC over HTTP2", doc/PROTOCOL-HTTP2.md of the gRPC project.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_to_bytes

from reactant_core.errors import MESSAGE_LIMIT_BYTES, NOT_STARTED_KEY, clip

Header = tuple[bytes, bytes]
Headers = tuple[Header, ...]

PREFIX_BYTES: Final = 5
"""Compressed flag and big-endian length before each message."""

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

NO_ERROR: Final = 0
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
ENHANCE_YOUR_CALM: Final = 11

NOT_STARTED: Final[Header] = (NOT_STARTED_KEY.encode("ascii"), b"1")
HOP: Final[Header] = (b"reactant-hop", b"1")
RESPONSE_HEADERS: Final[Headers] = ((b":status", b"200"), (b"content-type", b"application/grpc"))

_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
# Printable ASCII but `%` goes as it is.
_UNQUOTED: Final = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"
# The table "HTTP2 Error Codes" of the source; what is not named there is INTERNAL.
_OF_RESET: Final = {
    REFUSED_STREAM: UNAVAILABLE,
    CANCEL: CANCELLED,
    ENHANCE_YOUR_CALM: RESOURCE_EXHAUSTED,
    12: 7,
}


def parse_timeout(value: bytes) -> float:
    """Seconds of a `grpc-timeout`, at most 8 digits and a unit.

    Raises:
        ValueError: anything else.
    """
    digits, unit = value[:-1], value[-1:]
    if not 1 <= len(digits) <= 8 or not digits.isdigit() or unit not in _UNITS:
        raise ValueError(f"grpc-timeout {value!r} is not 1 to 8 digits and one of H, M, S, m, u, n")
    return int(digits) * _UNITS[unit]


def format_timeout(seconds: float) -> bytes:
    """`seconds`, at least a microsecond, as a `grpc-timeout` as fine as eight digits allow."""
    micros = max(1, int(seconds * 1e6))
    if micros < 100_000_000:
        return b"%du" % micros
    if micros < 100_000_000_000:
        return b"%dm" % (micros // 1000)
    return b"%dS" % min(micros // 1_000_000, 99_999_999)


def status_headers(code: int, message: str, extra: Headers = ()) -> Headers:
    """`grpc-status` and, cut to 1 KiB before percent-encoding, `grpc-message`."""
    text = quote(clip(message, MESSAGE_LIMIT_BYTES), safe=_UNQUOTED).encode("ascii")
    return ((b"grpc-status", b"%d" % code), (b"grpc-message", text), *extra)


def message_of(headers: Headers) -> str:
    """The percent-decoded `grpc-message`, empty when there is none."""
    for name, value in headers:
        if name == b"grpc-message":
            return unquote_to_bytes(value).decode("utf-8", "replace")
    return ""


def status_of(headers: Headers) -> int | None:
    """The `grpc-status` among `headers`; None when there is none, UNKNOWN when it is no number."""
    for name, value in headers:
        if name == b"grpc-status":
            return int(value) if value.isdigit() and len(value) < 4 else UNKNOWN
    return None


def status_of_reset(error_code: int) -> int:
    """The status a reset stream stands for when no trailers came."""
    return _OF_RESET.get(error_code, INTERNAL)


def framed(message: bytes) -> bytes:
    """An uncompressed message behind its length prefix."""
    return b"\0" + len(message).to_bytes(4, "big") + message
