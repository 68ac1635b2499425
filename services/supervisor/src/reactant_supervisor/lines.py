"""Cuts a byte stream into whole lines of bounded length."""

from __future__ import annotations

from typing import final

LINE_LIMIT_BYTES = 64 * 1024
"""Longest line kept: a traceback in one JSON line fits, a runaway line cannot fill the memory."""


def _cut(line: bytes, limit: int) -> tuple[bytes, int]:
    """The first bytes of `line`, at most `limit` and never ending inside a UTF-8 character; bytes cut."""
    end = limit
    while end > limit - 4 and end > 0 and line[end] & 0xC0 == 0x80:
        end -= 1
    return line[:end], len(line) - end


@final
class LineSplitter:
    """Feed it chunks as they come, get complete lines back, without their line ends.

    A line over the limit keeps its beginning and says how many bytes were left out. Memory held is
    at most the limit and one chunk, whatever comes in.
    """

    __slots__ = ("_dropped", "_limit", "_partial")

    def __init__(self, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._partial = b""
        self._dropped = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Lines completed by `chunk`."""
        *whole, rest = chunk.split(b"\n")
        lines: list[bytes] = []
        for piece in whole:
            self._grow(piece)
            lines.append(self._take())
        self._grow(rest)
        return lines

    def flush(self) -> list[bytes]:
        """What is left without a line end: one line, or none."""
        return [self._take()] if self._partial or self._dropped else []

    def _grow(self, piece: bytes) -> None:
        if self._dropped:
            self._dropped += len(piece)
            return
        self._partial += piece
        if len(self._partial) > self._limit:
            self._partial, self._dropped = _cut(self._partial, self._limit)

    def _take(self) -> bytes:
        line, dropped = self._partial, self._dropped
        self._partial, self._dropped = b"", 0
        if dropped:
            return line + f" … ({dropped} more bytes left out)".encode()
        return line.removesuffix(b"\r")
