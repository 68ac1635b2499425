"""Near misses of a name, for people who mistyped it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near_names(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """Those of `names` that look like `name`, best first; case does not count."""
    by_folded: dict[str, list[str]] = {}
    for candidate in names:
        by_folded.setdefault(candidate.casefold(), []).append(candidate)
    found = difflib.get_close_matches(name.casefold(), by_folded, n=limit)
    return [candidate for folded in found for candidate in by_folded[folded]][:limit]


def listed(names: Iterable[str], limit: int = 8) -> str:
    """`a, b, c and 4 more`."""
    every = list(names)
    rest = len(every) - limit
    return ", ".join(every[:limit]) + (f" and {rest} more" if rest > 0 else "")
