"""What is wrong with a bundle, every fault at once."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import final

MAX_FAULTS = 50
"""Faults kept of one file. A hostile manifest can hold tens of thousands; nobody reads them."""

_SHOWN_CHARS = 80
_LONGEST_COMPARED = 40


@final
class BundleError(Exception):
    """A bundle, or one file of it, cannot be used.

    Attributes:
        faults: each fault as a sentence that names the file, key or tensor.
    """

    def __init__(self, faults: str | Iterable[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "; ".join(self.faults)


@final
class FaultList:
    """Collects faults, keeps the first `MAX_FAULTS` and counts the others."""

    __slots__ = ("_kept", "_total")

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._total = 0

    def __bool__(self) -> bool:
        return self._total > 0

    @property
    def full(self) -> bool:
        """Whether a further fault would only be counted: its text need not be made."""
        return len(self._kept) >= MAX_FAULTS

    def add(self, fault: str) -> None:
        self._total += 1
        if not self.full:
            self._kept.append(fault)

    def sentences(self) -> tuple[str, ...]:
        """The faults in the order found, with a last line that counts those left out."""
        left_out = self._total - len(self._kept)
        if left_out:
            return (*self._kept, f"and {left_out} further faults")
        return tuple(self._kept)

    def raise_if_any(self) -> None:
        if self:
            raise BundleError(self.sentences())


def shown(value: object) -> str:
    """`value` as an error text may quote it: one line, at most 80 characters.

    Containers are named by kind only, since their repr can be as large as the file they came from.
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 256:
        return "an integer of over 256 bits"
    text = repr(value[: _SHOWN_CHARS + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def instead(value: object) -> str:
    """How a fault ends that began with what must be there."""
    return "; it is missing" if value is None else f", not {shown(value)}"


def suggestion(word: str, accepted: Collection[str]) -> str:
    """`" (did you mean 'x'?)"` when one of `accepted` is near `word`, else an empty string."""
    if len(word) > _LONGEST_COMPARED:
        return ""
    near = difflib.get_close_matches(word, accepted, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
