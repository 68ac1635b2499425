"""Finds links between the checkout's Markdown files that lead nowhere: `python -m tools.links`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from tools.files import checkout_files

_INLINE: Final = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_REFERENCE: Final = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)")
_CODE_SPAN: Final = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_HEADING: Final = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
_SCHEME: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:")


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines outside fenced code blocks."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = re.match(r"\s{0,3}(```+|~~~+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif not fence:
            yield number, line


def anchors(text: str) -> set[str]:
    """Fragments that a reader's browser finds in the page: its headings, as code hosts spell them."""
    found: set[str] = set()
    for _, line in _prose(text):
        heading = _HEADING.match(line)
        if heading:
            words = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            candidate, copies = words, 0
            while candidate in found:
                copies += 1
                candidate = f"{words}-{copies}"
            found.add(candidate)
    return found


def targets(text: str) -> Iterator[tuple[int, str]]:
    """Every link target outside code, with the number of its line."""
    for number, line in _prose(text):
        plain = _CODE_SPAN.sub("", line)
        for match in _INLINE.finditer(plain):
            yield number, match[1]
        reference = _REFERENCE.match(plain)
        if reference:
            yield number, reference[1]


def dead_links(root: Path, paths: Iterable[Path]) -> list[str]:
    """One sentence for each relative link in the Markdown files among `paths` that leads nowhere."""
    faults = []
    for page in (path for path in paths if path.suffix == ".md"):
        text = (root / page).read_text(encoding="utf-8")
        for number, target in targets(text):
            if not _SCHEME.match(target):
                fault = _fault(root, page, text, target)
                if fault:
                    faults.append(f"{page}:{number}: {target}: {fault}")
    return faults


def _fault(root: Path, page: Path, text: str, target: str) -> str | None:
    name, _, fragment = unquote(target).partition("#")
    if name.startswith("/"):
        return "is absolute: write it relative to the page"
    goal = (root / page.parent / name).resolve() if name else root / page
    if not goal.is_relative_to(root.resolve()):
        return "leads out of the repository"
    if not goal.exists():
        return "does not exist"
    if fragment and goal.suffix == ".md":
        page_text = goal.read_text(encoding="utf-8") if name else text
        if fragment not in anchors(page_text):
            return f"has no heading {fragment!r}"
    return None


def main() -> int:
    root = Path.cwd()
    faults = dead_links(root, checkout_files(root))
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
