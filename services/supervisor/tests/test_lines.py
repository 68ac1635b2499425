from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_supervisor.lines import LineSplitter


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_lines_are_those_of_the_whole_stream_however_it_is_cut(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.flush()
    whole = b"".join(chunks).split(b"\n")
    if not whole[-1]:
        whole.pop()
    assert lines == [line.removesuffix(b"\r") for line in whole]


def test_a_line_without_its_end_comes_out_at_the_flush_only_once() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == [b"one"]
    assert splitter.flush() == [b"tw"]
    assert splitter.flush() == []


@pytest.mark.parametrize("size", [11, 1000, 100_000])
def test_a_long_line_keeps_its_beginning_and_says_what_is_missing(size: int) -> None:
    splitter = LineSplitter(limit_bytes=10)
    lines = [line for _ in range(size) for line in splitter.feed(b"x")]
    assert lines == []
    first, second = splitter.feed(b"\nnext\n")
    assert first.decode() == f"{'x' * 10} … ({size - 10} more bytes left out)"
    assert second == b"next"


@pytest.mark.parametrize("character", ["é", "語", "🎉"])
@pytest.mark.parametrize("shift", range(4))
def test_the_cut_is_never_inside_a_character(character: str, shift: int) -> None:
    splitter = LineSplitter(limit_bytes=20)
    (line,) = splitter.feed(b"a" * shift + character.encode() * 20 + b"\n")
    assert line.decode().startswith("a" * shift + character)


def test_a_line_of_stray_continuation_bytes_is_still_bounded() -> None:
    (line,) = LineSplitter(limit_bytes=20).feed(b"\x80" * 1000 + b"\n")
    assert len(line) < 80
