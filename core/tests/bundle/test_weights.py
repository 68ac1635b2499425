from __future__ import annotations

import json
import os
import stat
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from reactant_core.bundle.dtypes import WEIGHTS
from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.weights import WeightSet, open_weights, write_weights

Array = np.ndarray[Any, Any]
_SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


def _array(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> Array:
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if dtype == np.bool_ else 256, size, np.uint8)
    return raw.view(dtype).reshape(shape)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=12).filter(lambda n: n != "__metadata__" and n.isprintable()),
        st.tuples(st.sampled_from(sorted(WEIGHTS)), _SHAPES, st.integers(0, 99)),
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_what_is_written_is_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, specs: dict[str, Any], random: Any
) -> None:
    path = tmp_path_factory.mktemp("w") / "weights.safetensors"
    arrays = {name: _array(WEIGHTS[t].numpy, shape, seed) for name, (t, shape, seed) in specs.items()}
    order = list(arrays)
    random.shuffle(order)
    write_weights(path, arrays, order)
    weights = open_weights(path)
    assert weights.argument_order == tuple(order)
    assert weights.nbytes == sum(array.nbytes for array in arrays.values())
    copies = {name: np.empty(weights.tensors[name].nbytes, np.uint8) for name in order}
    weights.read_into((name, copy.data) for name, copy in copies.items())
    for name, got in zip(order, weights.arrays(), strict=True):
        assert (got.dtype, got.shape) == (arrays[name].dtype, arrays[name].shape)
        assert got.tobytes() == arrays[name].tobytes() == copies[name].tobytes()


def test_layout_on_disk(tmp_path: Path) -> None:
    arrays = {
        "flag": np.array([True, False, True]),
        "wide": np.arange(3, dtype=np.float64),
        "half": np.ones((2, 1), ml_dtypes.bfloat16),
    }
    path = tmp_path / "weights.safetensors"
    write_weights(path, arrays, ["half", "flag", "wide"])
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    assert (8 + length) % 64 == 0
    assert json.loads(header["__metadata__"]["argument_order"]) == ["half", "flag", "wide"]
    assert header["wide"] == {"dtype": "F64", "shape": [3], "data_offsets": [0, 24]}
    assert header["half"] == {"dtype": "BF16", "shape": [2, 1], "data_offsets": [24, 28]}
    assert header["flag"] == {"dtype": "BOOL", "shape": [3], "data_offsets": [28, 31]}
    assert len(raw) == 8 + length + 31
    for tensor in open_weights(path).tensors.values():
        assert tensor.offset % tensor.dtype.itemsize == 0


def test_any_memory_layout_and_byte_order_can_be_written(tmp_path: Path) -> None:
    source = np.arange(12, dtype=">i4").reshape(3, 4)
    path = tmp_path / "weights.safetensors"
    write_weights(path, {"t": source.T, "s": source[:, ::2]}, ["t", "s"])
    t, s = open_weights(path).arrays()
    assert t.dtype == np.dtype("<i4")
    np.testing.assert_array_equal(t, source.T)
    np.testing.assert_array_equal(s, source[:, ::2])


def test_a_file_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    write_weights(path, {}, [])
    weights = open_weights(path)
    assert (weights.argument_order, weights.nbytes, weights.arrays()) == ((), 0, [])


def test_writing_replaces_the_file_at_once_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    write_weights(path, {"w": np.zeros(4, np.float32)}, ["w"])
    before = open_weights(path)
    view = before.array("w")
    write_weights(path, {"w": np.ones(4, np.float32)}, ["w"])
    assert view.tolist() == [0, 0, 0, 0]
    assert open_weights(path).array("w").tolist() == [1, 1, 1, 1]
    assert os.listdir(tmp_path) == [path.name]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_weights(path, {"w": np.zeros(4, np.float32)}, ["w"])
    assert os.listdir(tmp_path) == [path.name]


def test_faults_in_what_is_to_be_written_come_at_once(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    arrays: dict[str, Array] = {
        "": np.zeros(1),
        "c": np.zeros(1, np.complex64),
        "w": np.zeros(1),
        "v": np.zeros(1),
    }
    with pytest.raises(BundleError) as caught:
        write_weights(path, arrays, ["", "c", "w", "w", "x"])
    assert [fault.partition(";")[0] for fault in caught.value.faults] == [
        "'' cannot be a weight's name",
        "weight 'c' has dtype complex64",
        "argument_order must list 'v' once, not 0 times",
        "argument_order must list 'w' once, not 2 times",
        "argument_order lists 'x', which is not among the weights",
    ]
    assert not path.exists()


@pytest.fixture
def written(tmp_path: Path) -> WeightSet:
    path = tmp_path / "weights.safetensors"
    arrays: dict[str, Array] = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.arange(5, dtype=np.int8),
    }
    write_weights(path, arrays, ["b", "a"])
    return open_weights(path)


def test_views_are_read_only_and_outlive_the_set(written: WeightSet) -> None:
    view = written.array("a")
    assert not view.flags.writeable
    del written
    assert view.sum() == 15


def _open_files() -> list[str]:
    return [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]


def test_a_file_is_held_by_views_alone(written: WeightSet) -> None:
    path = str(written.path)
    assert path not in _open_files()
    views = [*written.arrays(), written.array("a")]
    assert _open_files().count(path) == 1
    del views
    assert path not in _open_files()


def test_unknown_names_and_buffers_of_another_size(written: WeightSet) -> None:
    with pytest.raises(KeyError):
        written.array("c")
    with pytest.raises(ValueError, match="a: a buffer of 8 bytes for 24"):
        written.read_into([("a", memoryview(bytearray(8)))])


@pytest.mark.parametrize("change", ["append", "rewrite", "replace", "remove", "truncate"])
def test_a_file_changed_since_it_was_checked_is_not_read(written: WeightSet, change: str) -> None:
    path = written.path
    raw = path.read_bytes()
    if change == "append":
        path.write_bytes(raw + b"x")
    elif change == "rewrite":
        path.write_bytes(raw)
        os.utime(path, ns=(1, 1))
    elif change == "replace":
        (path.parent / "new").write_bytes(raw)
        (path.parent / "new").replace(path)
    elif change == "remove":
        path.unlink()
    else:
        path.write_bytes(raw[:-1])
    with pytest.raises(BundleError, match=r"has changed since it was checked|cannot be opened"):
        written.array("a")
    with pytest.raises(BundleError, match=r"has changed since it was checked|cannot be opened"):
        written.read_into([("a", memoryview(bytearray(24)))])


def test_reversed_axes(written: WeightSet) -> None:
    turned = written.with_axes_reversed()
    assert turned.tensors["a"].shape == (3, 2)
    assert (turned.argument_order, turned.nbytes) == (written.argument_order, written.nbytes)
    np.testing.assert_array_equal(turned.array("a"), written.array("a").T)
    assert not turned.array("a").flags.writeable
    copy = np.empty((3, 2), np.float32)
    turned.read_into([("a", copy.data), ("b", memoryview(bytearray(5)))])
    np.testing.assert_array_equal(copy, written.array("a").T)
    assert turned.with_axes_reversed().tensors == written.tensors
