"""Random changes to frames. Pure: the same `Random` gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, final

from tests.fuzz import frames as f
from tests.fuzz.corpus import CORPUS, WELL_FRAMED, Frames

_VALUES: Final = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_VERBATIM = 0.15
_INSIDE = 0.6
"""Of the changed, those whose frames stay sound: only what DATA carries is changed."""
_COSTLY = 0.02
_OPENING = 0.05
_CALL = 0.6

_NAMES: Final = {
    (opening, costly): [n for n, s in CORPUS.items() if s.opening is opening and s.costly is costly]
    for opening in (False, True)
    for costly in (False, True)
}
_CHEAP: Final = _NAMES[False, False]
_CALLS: Final = [name for name in _CHEAP if name in WELL_FRAMED]


@final
@dataclass(frozen=True, slots=True)
class Input:
    """One input.

    Attributes:
        name: the sample it was made of.
        opening: it begins a connection.
        content: its bytes for the stream it was made for.
        span: stream ids it may use, from that stream on.
        fatal: the connection may not survive it.
    """

    name: str
    opening: bool
    content: bytes
    span: int
    fatal: bool


def make(seed: str, number: int, stream: int) -> Input:
    """Input `number` of a run, for a stream; the stream changes nothing else."""
    rng = Random(f"{seed}:{number}")
    opening = rng.random() < _OPENING
    costly = not opening and rng.random() < _COSTLY
    calls = not opening and not costly and rng.random() < _CALL
    name = rng.choice(_CALLS if calls else _NAMES[opening, costly])
    frames = CORPUS[name].make(stream)
    span = 2400 if costly else 20
    framed = name in WELL_FRAMED
    if rng.random() < _VERBATIM:
        return Input(name, opening, b"".join(frames), span, not framed)
    if rng.random() < _INSIDE:
        return Input(name, opening, b"".join(_inside(rng, frames)), span, not framed)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        frames = rng.choice(_OF_FRAMES)(rng, frames, stream)
    content = b"".join(frames)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        content = rng.choice(_OF_BYTES)(rng, content)
    return Input(name, opening, content, span, fatal=True)


def segments(rng: Random, content: bytes) -> list[bytes]:
    """`content` cut as a network might."""
    kind = rng.random()
    if kind < 0.5 or len(content) < 2:
        return [content]
    if kind < 0.55 and len(content) < 500:
        return [content[at : at + 1] for at in range(len(content))]
    cuts = sorted(rng.randrange(1, len(content)) for _ in range(rng.randrange(1, 6)))
    return [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True) if b > a]


def _inside(rng: Random, frames: Frames) -> Frames:
    """What DATA frames carry, changed and perhaps cut into others; their framing is sound."""
    out = []
    for given in frames:
        if len(given) < f.HEADER_BYTES or given[3] != f.DATA or rng.random() < 0.3:
            out.append(given)
            continue
        flags, stream = given[4], int.from_bytes(given[5:9], "big")
        payload = given[f.HEADER_BYTES :]
        for _ in range(rng.choice((1, 1, 2, 4))):
            payload = rng.choice(_OF_BYTES)(rng, payload)
        if rng.random() < 0.5 and len(payload) >= f.HEADER_BYTES:
            # The length prefix is made to fit, or little but the prefix would ever be read.
            payload = f.message(payload[5:], flag=payload[0] & 1)
        pieces = _pieces(rng, payload)
        for at, piece in enumerate(pieces):
            last = at == len(pieces) - 1
            out.append(f.frame(f.DATA, flags if last else flags & ~f.END_STREAM, stream, piece))
    return out


def _pieces(rng: Random, payload: bytes) -> list[bytes]:
    if rng.random() < 0.6 or len(payload) < 2:
        return [payload[at : at + 16384] for at in range(0, len(payload), 16384)] or [b""]
    size = max(rng.choice((1, 2, 5, 9, 100, 1000)), len(payload) // 200)
    return [payload[at : at + size] for at in range(0, len(payload), size)]


# --- bytes ---------------------------------------------------------------------------------------------


def _flip(rng: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 9)):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(rng: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice(_VALUES)
    return bytes(changed)


def _truncate(rng: Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _repeat(rng: Random, content: bytes) -> bytes:
    start = rng.randrange(len(content) + 1)
    part = content[start : start + rng.randrange(1, 40)]
    return content[:start] + part * rng.randrange(2, 20) + content[start:]


def _insert(rng: Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    junk = rng.choice((b"\xff" * 11, b"\x80" * 5, rng.randbytes(rng.randrange(1, 20)), b"\x0b", b"\x2a\x00"))
    return content[:at] + junk + content[at:]


def _remove(rng: Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + content[at + rng.randrange(1, 16) :]


_OF_BYTES: Final[Sequence[Callable[[Random, bytes], bytes]]] = (
    _flip, _flip, _overwrite, _overwrite, _truncate, _repeat, _insert, _remove,
)  # fmt: skip

# --- frames --------------------------------------------------------------------------------------------


def _duplicate(rng: Random, frames: Frames, _: int) -> Frames:
    at = rng.randrange(len(frames)) if frames else 0
    return [*frames[:at], *frames[at : at + 1] * rng.choice((2, 2, 3, 10)), *frames[at + 1 :]]


def _drop(rng: Random, frames: Frames, _: int) -> Frames:
    at = rng.randrange(len(frames)) if frames else 0
    return [*frames[:at], *frames[at + 1 :]]


def _swap(rng: Random, frames: Frames, _: int) -> Frames:
    changed = list(frames)
    rng.shuffle(changed)
    return changed


def _splice(rng: Random, frames: Frames, stream: int) -> Frames:
    other = CORPUS[rng.choice(_CHEAP)].make(stream)
    at = rng.randrange(len(frames) + 1)
    start = rng.randrange(len(other)) if other else 0
    return [*frames[:at], *other[start : start + 3], *frames[at:]]


def _follow(rng: Random, frames: Frames, stream: int) -> Frames:
    return [*frames, *CORPUS[rng.choice(_CHEAP)].make(stream + 2)]


def _header(rng: Random, frames: Frames, _: int) -> Frames:
    """One byte or bit of a frame's own header."""
    if not frames:
        return frames
    at = rng.randrange(len(frames))
    changed = bytearray(frames[at])
    place = rng.randrange(f.HEADER_BYTES)
    if place < len(changed):
        changed[place] = rng.choice((*_VALUES, changed[place] ^ 1 << rng.randrange(8)))
    return [*frames[:at], bytes(changed), *frames[at + 1 :]]


_OF_FRAMES: Final[Sequence[Callable[[Random, Frames, int], Frames]]] = (
    _duplicate, _drop, _swap, _splice, _splice, _follow, _header, _header,
)  # fmt: skip
