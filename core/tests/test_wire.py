from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_core.wire import TYPED_FIELDS, frame_bytes, unframe_bytes


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_elements_survive_the_framing(elements: list[bytes]) -> None:
    assert unframe_bytes(frame_bytes(elements), len(elements)) == elements


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (struct.pack("<I", 3) + b"ab", "too few for 2 BYTES elements"),
        (struct.pack("<I", 3) + b"abcd", "ends after 1 of 2"),
        (struct.pack("<I", 0xFFFFFFFF) + b"abcd", "element 0 claims 4294967295 bytes, 4 are left"),
        ((struct.pack("<I", 1) + b"a") * 3, "5 stray bytes after 2"),
        ((struct.pack("<I", 1) + b"a") * 2 + b"xyz", "3 stray bytes"),
    ],
)
def test_broken_framing_is_refused(raw: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        unframe_bytes(raw, 2)


def test_a_count_no_memory_could_hold_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="too few"):
        unframe_bytes(b"", 2**62)


def test_every_datatype_but_the_short_floats_has_a_typed_field() -> None:
    assert set(BY_KSERVE) - set(TYPED_FIELDS) == {"FP16", "BF16"}
