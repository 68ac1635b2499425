from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.weights import open_weights, write_weights


def _entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _order(*names: str) -> dict[str, str]:
    return {"argument_order": json.dumps(names)}


def test_headers_may_be_padded_and_list_tensors_in_any_order(write_raw: Callable[..., Path]) -> None:
    header = {"b": _entry("I8", [2], 4, 6), "__metadata__": _order("a", "b"), "a": _entry("F32", [], 0, 4)}
    path = write_raw(json.dumps(header).encode() + b" \n  ", struct.pack("<f", 2.5) + b"\x01\xff")
    weights = open_weights(path)
    assert list(weights.tensors) == ["b", "a"]
    assert [array.tolist() for array in weights.arrays()] == [2.5, [1, -1]]


def test_l11_bf16_and_f8_load(write_raw: Callable[..., Path]) -> None:
    header = {
        "__metadata__": _order("bf", "e4", "e5"),
        "bf": _entry("BF16", [2], 0, 4),
        "e4": _entry("F8_E4M3", [1], 4, 5),
        "e5": _entry("F8_E5M2", [1], 5, 6),
    }
    bf, e4, e5 = open_weights(write_raw(header, bytes.fromhex("803f0040") + b"\x38\x3c")).arrays()
    assert bf.astype(np.float32).tolist() == [1, 2]
    assert e4.astype(np.float32).tolist() == e5.astype(np.float32).tolist() == [1]


def test_unaligned_tensors_are_read(write_raw: Callable[..., Path]) -> None:
    header = {
        "__metadata__": _order("a", "b"),
        "a": _entry("U8", [1], 0, 1),
        "b": _entry("F64", [1], 1, 9),
    }
    assert open_weights(write_raw(header, b"\1" + struct.pack("<d", 7))).array("b").tolist() == [7]


_A = _entry("F32", [2], 0, 8)
_M = _order("a")

# Each row: header, data length, and the faults it gives.
HEADERS: list[tuple[str, object, int, tuple[str, ...]]] = [
    ("no order", {"a": _A}, 8, ("__metadata__.argument_order is missing",)),
    ("no order in metadata", {"__metadata__": {"format": "pt"}, "a": _A}, 8, ("argument_order is missing",)),
    ("unlisted", {"__metadata__": _order(), "a": _A}, 8, ("argument_order does not list tensor 'a'",)),
    (
        "missing tensor",
        {"__metadata__": _order("a", "b"), "a": _A},
        8,
        ("lists 'b', which the file does not",),
    ),
    ("listed twice", {"__metadata__": _order("a", "a"), "a": _A}, 8, ("argument_order lists 'a' twice",)),
    ("order is no list", {"__metadata__": {"argument_order": "{}"}, "a": _A}, 8, ("'[' is expected",)),
    ("order of numbers", {"__metadata__": {"argument_order": "[1]"}, "a": _A}, 8, ("a string is expected",)),
    ("order with a tail", {"__metadata__": {"argument_order": "[] 1"}}, 0, ("text after the end",)),
    ("order as a list", {"__metadata__": {"argument_order": []}}, 0, ("a string is expected",)),
    (
        "dtype",
        {"__metadata__": _M, "a": _entry("F4", [2], 0, 8)},
        8,
        ("'a' has dtype 'F4'; accepted: BF16, BOOL",),
    ),
    (
        "too few bytes",
        {"__metadata__": _M, "a": _entry("F32", [3], 0, 8)},
        8,
        ("F32[3] takes 12 bytes but its",),
    ),
    ("scalar", {"__metadata__": _M, "a": _entry("F32", [], 0, 8)}, 8, ("F32[] takes 4 bytes",)),
    ("backwards", {"__metadata__": _M, "a": _entry("F32", [2], 8, 0)}, 0, ("data_offsets are [8, 0]",)),
    ("overflow", {"__metadata__": _M, "a": _entry("F32", [2**62, 4], 0, 8)}, 8, ("shape of more than 2^63",)),
    ("overflow to 0", {"__metadata__": _M, "a": _entry("U8", [2**32, 2**32], 0, 0)}, 0, ("more than 2^63",)),
    ("overflow by 0", {"__metadata__": _M, "a": _entry("U8", [2**62, 4, 0], 0, 0)}, 0, ("more than 2^63",)),
    (
        "beyond",
        {"__metadata__": _M, "a": _entry("F32", [2], 2**62, 2**62 + 8)},
        8,
        ("belong to no tensor", "short of"),
    ),
    ("trailing", {"__metadata__": _M, "a": _A}, 9, ("has 1 bytes after its last tensor",)),
    (
        "half copied",
        {"__metadata__": _M, "a": _A},
        5,
        ("is 3 bytes short of its last tensor; is it still being",),
    ),
    (
        "gap in front",
        {"__metadata__": _M, "a": _entry("F32", [2], 4, 12)},
        12,
        ("bytes 0 to 4 before tensor 'a'",),
    ),
    (
        "overlap",
        {"__metadata__": _order("a", "b"), "a": _A, "b": _entry("F32", [2], 4, 12)},
        12,
        ("tensors 'a' and 'b' overlap",),
    ),
    (
        "same bytes",
        {"__metadata__": _order("a", "b"), "a": _A, "b": _A},
        8,
        ("tensors 'a' and 'b' overlap",),
    ),
    (
        "inside",
        {"__metadata__": _order("a", "b"), "a": _A, "b": _entry("U8", [1], 2, 3)},
        8,
        ("tensors 'a' and 'b' overlap",),
    ),
    (
        "gap between",
        {"__metadata__": _order("a", "b"), "a": _A, "b": _entry("U8", [1], 9, 10)},
        10,
        ("bytes 8 to 9 before tensor 'b' belong to no tensor",),
    ),
    (
        "several",
        {"__metadata__": _order("b"), "a": _entry("F32", [9], 0, 8), "b": _entry("X", [2], 8, 12)},
        14,
        ("'a' of F32[9]", "'b' has dtype 'X'", "has 2 bytes after", "does not list tensor 'a'"),
    ),
    ("null metadata", {"__metadata__": None}, 0, ("'{' is expected",)),
    ("number in metadata", {"__metadata__": {"x": 1}}, 0, ("a string is expected",)),
    ("list", [], 0, ("'{' is expected",)),
    ("entry is a list", {"a": []}, 0, ("tensor 'a': '{' is expected",)),
    ("extra field", {"a": _A | {"device": "cpu"}}, 8, ("tensor 'a' has the unknown field 'device'",)),
    (
        "no shape",
        {"a": {"dtype": "F32", "data_offsets": [0, 8]}},
        8,
        ("needs dtype, shape and two data_offsets",),
    ),
    ("one offset", {"a": _A | {"data_offsets": [0]}}, 8, ("needs dtype, shape and two data_offsets",)),
    ("three offsets", {"a": _A | {"data_offsets": [0, 8, 9]}}, 8, ("more than 2 items",)),
    ("negative size", {"a": _A | {"shape": [-2]}}, 8, ("an integer of at least 0",)),
    ("negative offset", {"a": _A | {"data_offsets": [-8, 0]}}, 8, ("an integer of at least 0",)),
    ("fraction", {"a": _A | {"shape": [2.0]}}, 8, ("an integer of at least 0",)),
    ("truth", {"a": _A | {"shape": [True]}}, 8, ("an integer of at least 0",)),
    ("huge integer", {"a": _A | {"shape": [10**30]}}, 8, ("an integer of at least 0",)),
    ("rank", {"a": _A | {"shape": [1] * 65}}, 8, ("more than 64 items",)),
    ("numeric dtype", {"a": _A | {"dtype": 3}}, 8, ("a string is expected",)),
    (
        "exponent",
        b'{"a":{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}}',
        8,
        ("an integer of at least 0",),
    ),
    (
        "leading zero",
        b'{"a":{"dtype":"F32","shape":[02],"data_offsets":[0,8]}}',
        8,
        ("an integer of at least 0",),
    ),
    (
        "tensor twice",
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"\\u0061":{}}',
        8,
        ("tensor 'a' is given twice",),
    ),
    ("field twice", b'{"a":{"dtype":"F32","dtype":"F32"}}', 8, ("tensor 'a' has 'dtype' twice",)),
    ("metadata twice", b'{"__metadata__":{},"__metadata__":{}}', 0, ("__metadata__ is given twice",)),
    ("metadata key twice", b'{"__metadata__":{"x":"","x":""}}', 0, ("__metadata__ has 'x' twice",)),
    ("order twice", b'{"__metadata__":{"argument_order":"[]","argument_order":"[]"}}', 0, ("twice",)),
    ("comma at the end", b'{"__metadata__":{"x":""},}', 0, ("a string is expected",)),
    ("tail", b"{}{}", 0, ("text after the end",)),
    ("not UTF-8", b'{"\xff":1}', 0, ("not valid UTF-8",)),
    ("half a surrogate pair", b'{"\\ud800":1}', 0, ("not valid UTF-8",)),
    ("bad escape", b'{"\\u12":1}', 0, ("not valid UTF-8 or has an invalid escape",)),
    ("control character", b'{"a\nb":1}', 0, ("a string is expected",)),
    ("unclosed", b'{"a', 0, ("a string is expected",)),
    ("NULs", b"\0" * 64, 0, ("'{' is expected",)),
    ("empty", b"", 0, ("'{' is expected",)),
]


@pytest.mark.parametrize(
    ("header", "size", "faults"), [row[1:] for row in HEADERS], ids=[r[0] for r in HEADERS]
)
def test_l11_faulty_headers(
    write_raw: Callable[..., Path], header: object, size: int, faults: tuple[str, ...]
) -> None:
    with pytest.raises(BundleError) as caught:
        open_weights(write_raw(header, bytes(size)))
    found = caught.value.faults
    assert len(found) == len(faults), found
    for fault, part in zip(found, faults, strict=True):
        assert fault.startswith("weights.safetensors: ")
        assert part in fault


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "ended after 0 of 8 bytes"),
        (b"\1\0\0", "ended after 3 of 8 bytes"),
        (
            struct.pack("<Q", 2**63) + b"{}",
            "declares a header of 9223372036854775808 bytes but has 10 in all",
        ),
        (struct.pack("<Q", 3) + b"{}", "declares a header of 3 bytes but has 10 in all"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "declares a header of 18446744073709551615 bytes"),
    ],
)
def test_l11_header_lengths(tmp_path: Path, raw: bytes, fault: str) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(raw)
    with pytest.raises(BundleError) as caught:
        open_weights(path)
    assert fault in str(caught.value)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(st.data())
def test_any_damage_to_a_file_gives_a_weight_set_or_a_bundle_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("w") / "weights.safetensors"
    write_weights(path, {"a": np.arange(3, dtype=np.float32), "b": np.ones(2, np.int8)}, ["b", "a"])
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] = data.draw(st.integers(0, 255) | st.sampled_from(list(b'{}[],:"\\0123456789')))
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)) | st.just(len(raw)))])
    try:
        weights = open_weights(path)
    except BundleError:
        return
    assert sum(array.nbytes for array in weights.arrays()) == weights.nbytes
