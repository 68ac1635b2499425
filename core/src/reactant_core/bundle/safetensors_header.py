"""The JSON header of a safetensors file, read token by token.

A general JSON parser would build whatever a hostile header spells out, hundreds of megabytes of it,
before anything can be checked, and would keep the last of two equal keys. The header's grammar is
small (https://github.com/huggingface/safetensors#format), so only what fits it is ever built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar, final

from reactant_core.bundle.errors import BundleError, shown

MAX_TENSORS: Final = 65_536
MAX_RANK: Final = 64
_MAX_METADATA_KEYS: Final = 1_024
_MAX_STRING_BYTES: Final = 4 << 20
"""One character beyond the BMP makes Python spend four bytes on each: this keeps that bounded."""

_METADATA: Final = "__metadata__"
_T = TypeVar("_T")
_FIELDS: Final = ("dtype", "shape", "data_offsets")

_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
# Possessive, so that a long string costs no memory for ways back that cannot match.
_STRING: Final = re.compile(rb'"[^"\\\x00-\x1f]*+(?:\\["\\/bfnrtu][^"\\\x00-\x1f]*+)*+"')
# 20 digits hold every unsigned 64-bit integer.
_INTEGER: Final = re.compile(rb"(?:0|[1-9][0-9]{0,19}+)(?![0-9.eE])")


@final
@dataclass(frozen=True, slots=True)
class HeaderEntry:
    """One tensor as the header declares it; nothing but the JSON types is checked.

    Attributes:
        dtype: the format's name of the element type.
        shape: sizes, row-major.
        begin: first byte, counted from the end of the header.
        end: one past the last byte, counted likewise.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@final
@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header.

    Attributes:
        entries: tensors by name, in the header's order.
        argument_order: the list in `__metadata__.argument_order`, None when it is not there.
    """

    entries: dict[str, HeaderEntry]
    argument_order: tuple[str, ...] | None


def parse_header(data: bytes) -> Header:
    """Reads a header's JSON, padding included.

    Raises:
        BundleError: for JSON that does not fit the format, a key given twice, more than 65,536
            tensors or more than 64 axes.
    """
    scanner = _Scanner(data, "header")
    entries: dict[str, HeaderEntry] = {}
    order: tuple[str, ...] | None = None
    metadata_seen = False
    for name in scanner.keys("tensors and __metadata__", MAX_TENSORS + 1):
        if name == _METADATA:
            if metadata_seen:
                raise scanner.fault(f"{_METADATA} is given twice")
            metadata_seen = True
            order = _read_metadata(scanner)
        else:
            if name in entries:
                raise scanner.fault(f"tensor {shown(name)} is given twice")
            if len(entries) == MAX_TENSORS:
                raise scanner.fault(f"holds more than {MAX_TENSORS} tensors")
            entries[name] = _read_entry(scanner, name)
    scanner.end()
    return Header(entries, order)


def _read_metadata(scanner: _Scanner) -> tuple[str, ...] | None:
    order: tuple[str, ...] | None = None
    seen: set[str] = set()
    for key in scanner.keys(_METADATA, _MAX_METADATA_KEYS):
        if key in seen:
            raise scanner.fault(f"{_METADATA} has {shown(key)} twice")
        seen.add(key)
        if key == "argument_order":
            inner = _Scanner(scanner.string().encode("utf-8"), f"{_METADATA}.argument_order")
            order = tuple(inner.strings(MAX_TENSORS))
            inner.end()
        else:
            scanner.skip_string()
    return order


def _read_entry(scanner: _Scanner, name: str) -> HeaderEntry:
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    offsets: tuple[int, ...] | None = None
    seen: set[str] = set()
    what = f"tensor {shown(name)}"
    for key in scanner.keys(what, len(_FIELDS) + 1):
        if key in seen:
            raise scanner.fault(f"{what} has {shown(key)} twice")
        seen.add(key)
        if key == "dtype":
            dtype = scanner.string()
        elif key == "shape":
            shape = tuple(scanner.integers(f"{what}'s shape", MAX_RANK))
        elif key == "data_offsets":
            offsets = tuple(scanner.integers(f"{what}'s data_offsets", 2))
        else:
            raise scanner.fault(f"{what} has the unknown field {shown(key)}; known: {', '.join(_FIELDS)}")
    if dtype is None or shape is None or offsets is None or len(offsets) != 2:
        raise scanner.fault(f"{what} needs dtype, shape and two data_offsets")
    return HeaderEntry(dtype, shape, *offsets)


@final
class _Scanner:
    """A cursor over JSON text."""

    __slots__ = ("_data", "_position", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._position = 0
        self._what = what

    def fault(self, message: str) -> BundleError:
        return BundleError(f"{self._what}: {message} (near byte {self._position})")

    def keys(self, what: str, limit: int) -> Iterator[str]:
        """An object's keys; the caller reads each value before taking the next key."""
        self._expect(b"{", what)
        if self._accept(b"}"):
            return
        count = 0
        while True:
            count += 1
            if count > limit:
                raise self.fault(f"{what}: more than {limit} entries")
            key = self.string()
            self._expect(b":", what)
            yield key
            if self._accept(b"}"):
                return
            self._expect(b",", what)

    def strings(self, limit: int) -> Iterator[str]:
        return self._items(self.string, "the list", limit)

    def integers(self, what: str, limit: int) -> Iterator[int]:
        return self._items(self._integer, what, limit)

    def string(self) -> str:
        token = self._token(_STRING, "a string")
        if len(token) > _MAX_STRING_BYTES:
            raise self.fault(f"a string of {len(token)} bytes; at most {_MAX_STRING_BYTES} are read")
        try:
            text = token.decode("utf-8")
            if "\\" not in text:
                return text[1:-1]
            text = str(json.loads(text))
            text.encode("utf-8")  # an escape can spell half of a surrogate pair
        except ValueError as error:
            raise self.fault("a string is not valid UTF-8 or has an invalid escape") from error
        return text

    def skip_string(self) -> None:
        self._space()
        found = _STRING.match(self._data, self._position)
        if found is None:
            raise self.fault("a string is expected")
        self._position = found.end()

    def end(self) -> None:
        """Raises unless only padding is left."""
        self._space()
        if self._position != len(self._data):
            raise self.fault("text after the end")

    def _items(self, read: Callable[[], _T], what: str, limit: int) -> Iterator[_T]:
        self._expect(b"[", what)
        if self._accept(b"]"):
            return
        count = 0
        while True:
            count += 1
            if count > limit:
                raise self.fault(f"{what}: more than {limit} items")
            yield read()
            if self._accept(b"]"):
                return
            self._expect(b",", what)

    def _integer(self) -> int:
        return int(self._token(_INTEGER, "an integer of at least 0 and at most 20 digits"))

    def _token(self, pattern: re.Pattern[bytes], what: str) -> bytes:
        self._space()
        found = pattern.match(self._data, self._position)
        if found is None:
            raise self.fault(f"{what} is expected")
        self._position = found.end()
        return found.group()

    def _accept(self, char: bytes) -> bool:
        self._space()
        if self._data[self._position : self._position + 1] != char:
            return False
        self._position += 1
        return True

    def _expect(self, char: bytes, what: str) -> None:
        if not self._accept(char):
            raise self.fault(f"{what}: {char.decode()!r} is expected")

    def _space(self) -> None:
        found = _SPACE.match(self._data, self._position)
        assert found is not None
        self._position = found.end()
