"""What the demo prints, as text of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

_WIDTH = 80
_BAR = 20
_SHADES = " ░▒▓█"
_HALVES = " ▀▄█"
"""Glyphs for two pixels, one above the other: neither dark, the upper, the lower, both."""
_BRIGHTEST = 16.0
_GAP = " " * 3


@final
@dataclass(frozen=True, slots=True)
class Style:
    """ANSI emphasis, or none where `enabled` is false."""

    enabled: bool

    def bold(self, text: str) -> str:
        return self._wrapped("1", text)

    def faint(self, text: str) -> str:
        return self._wrapped("2", text)

    def good(self, text: str) -> str:
        return self._wrapped("32", text)

    def bad(self, text: str) -> str:
        return self._wrapped("31", text)

    def _wrapped(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and text else text


def ranking(query: str, sentences: Sequence[str], scores: NDArray[np.float32], style: Style) -> str:
    """`query`, and under it `sentences` by falling score: cosines, [n], each with a bar for 0 to 1."""
    lines = [f"  {style.bold(query)}"]
    for index in np.argsort(-scores, kind="stable"):
        length = round(_BAR * min(max(float(scores[index]), 0.0), 1.0))
        bar = style.good("━" * length) + " " * (_BAR - length)
        prefix = f"  {scores[index]:6.2f}  {bar}  "
        lines.append(prefix + textwrap.shorten(sentences[index], _WIDTH - _BAR - 12, placeholder=" …"))
    return "\n".join(lines)


def digit_row(
    images: NDArray[np.float32],
    labels: NDArray[np.int32],
    probabilities: NDArray[np.float32],
    style: Style,
) -> str:
    """Pictures [n, 8, 8] side by side; under each what it was taken for, how surely, and its label."""
    cell = 2 * images.shape[2]
    shades = np.minimum(images / _BRIGHTEST * len(_SHADES), len(_SHADES) - 1).astype(int)
    # Every pixel is two columns wide, which makes it about square.
    pictures = [["".join(_SHADES[shade] * 2 for shade in row) for row in picture] for picture in shades]
    lines = [_GAP.join(rows).rstrip() for rows in zip(*pictures, strict=True)]
    verdicts, truths = [], []
    for label, row in zip(labels, probabilities, strict=True):
        guess = int(row.argmax())
        verdict = f"{guess}  ({row[guess]:.1%})".center(cell)
        verdicts.append((style.good if guess == label else style.bad)(verdict))
        truths.append(style.faint(f"label {label}".center(cell)))
    lines += [_GAP.join(verdicts), _GAP.join(truths)]
    return "\n".join(f"  {line}".rstrip() for line in lines)


def page_picture(
    image: NDArray[np.float32],
    corners: NDArray[np.int32],
    digits: NDArray[np.int32],
    labels: NDArray[np.int32],
    style: Style,
) -> str:
    """A page [h, w], h even, in half as many lines; beside each digit found what it was taken for.

    `corners` [d, 2] are rows and columns where digits begin, `digits` [d] and `labels` [d] what was read and
    what is there, in the same order.
    """
    dark = (image > _BRIGHTEST / 2).astype(int)
    lines = [[_HALVES[glyph] for glyph in row] for row in dark[::2] + 2 * dark[1::2]]
    for (y, x), digit, label in zip(corners, digits, labels, strict=True):
        verdict = (style.good if digit == label else style.bad)(str(digit))
        lines[y // 2][max(x - 1, 0)] = verdict
    return "\n".join(f"  {''.join(line)}".rstrip() for line in lines)
