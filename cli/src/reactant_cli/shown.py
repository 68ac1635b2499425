"""Values as messages show them: quoted, and never longer than a line is read."""

from __future__ import annotations

_LONGEST = 200


def cut(text: str) -> str:
    """`text`, cut to 200 characters."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def shown(value: object) -> str:
    """`repr(value)`, cut to 200 characters."""
    return cut(repr(value))
