from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_cli.codec import decode, decode_contents, encode
from reactant_cli.failure import CommandFailure
from reactant_cli.infer import read_outputs
from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_proto import inference_pb2

BYTES = BY_KSERVE["BYTES"]


@pytest.mark.parametrize("name", [name for name in BY_KSERVE if name != "BYTES"])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1,), ()])
def test_fixed_size_types_come_back_bit_for_bit(name: str, shape: tuple[int, ...]) -> None:
    dtype = BY_KSERVE[name]
    values = np.arange(math.prod(shape)).reshape(shape).astype(dtype.numpy)
    raw = encode(values, dtype)
    assert len(raw) == math.prod(shape) * dtype.itemsize
    assert decode(raw, dtype, shape).tolist() == values.tolist()


@pytest.mark.parametrize(
    "array", [np.arange(6, dtype="<f4").reshape(2, 3).T, np.arange(6, dtype=">f4").reshape(3, 2)]
)
def test_memory_order_and_byte_order_do_not_show_on_the_wire(array: Any) -> None:
    assert encode(array, BY_KSERVE["FP32"]) == np.ascontiguousarray(array, "<f4").tobytes()


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_bytes_come_back(items: list[bytes]) -> None:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    assert decode(encode(array, BYTES), BYTES, [len(items)]).tolist() == items


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (struct.pack("<I", 3) + b"abcd", "ends after 1 of 2 BYTES elements"),
        (struct.pack("<I", 1) + b"a", "too few for 2 BYTES elements"),
    ],
)
def test_broken_framing_is_said(raw: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode(raw, BY_KSERVE["BYTES"], [2])


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_length_that_does_not_fit_the_shape_is_said(size: int) -> None:
    with pytest.raises(ValueError, match=r"which needs 16"):
        decode(bytes(size), BY_KSERVE["FP32"], [1, 4])


def test_typed_contents_of_a_type_without_a_field() -> None:
    with pytest.raises(ValueError, match="BF16 has no typed contents"):
        decode_contents(inference_pb2.InferTensorContents(), BY_KSERVE["BF16"], [0])


@pytest.mark.parametrize(
    ("datatype", "raw", "expected"),
    [
        ("FP32", [b"", b""], "2 raw outputs for 1 tensors"),
        ("FP32", [b"123"], "faulty output 'Y': 3 bytes"),
        ("FP31", [b"1234"], "faulty output 'Y': datatype 'FP31' is unknown"),
        ("FP32", [], "faulty output 'Y': 0 values"),
    ],
)
def test_a_response_that_contradicts_itself_names_the_output(
    datatype: str, raw: list[bytes], expected: str
) -> None:
    response = inference_pb2.ModelInferResponse(raw_output_contents=raw)
    response.outputs.add(name="Y", datatype=datatype, shape=[1])
    with pytest.raises(CommandFailure, match=expected):
        read_outputs(response)
