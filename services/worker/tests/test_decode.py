"""Tensors on the wire: cases W1-W7 at the level of one message; tests/conformance runs them over gRPC."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_core.bundle.dtypes import BY_KSERVE
from reactant_core.bundle.manifest import TensorSpec
from reactant_core.errors import InvalidArgument, ModelNotFound
from reactant_proto import inference_pb2 as pb
from reactant_worker.models.tensors import BatchRows, batch_rows, check_batch
from reactant_worker.rpc import decode
from reactant_worker.rpc.encode import Wanted, encode_response
from reactant_worker.rpc.regions import Regions


def spec(name: str, datatype: str, *dims: int, batch_axis: int | None = 0) -> TensorSpec:
    return TensorSpec(name, BY_KSERVE[datatype], "nabcdef"[: len(dims)], dims, batch_axis)


def request(*tensors: tuple[str, str, list[int]], raw: list[bytes] | None = None) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="m")
    for name, datatype, shape in tensors:
        message.inputs.add(name=name, datatype=datatype, shape=shape)
    message.raw_input_contents.extend(raw or [])
    return message


def decode_inputs(model: str, message: pb.ModelInferRequest, specs: dict[str, TensorSpec]) -> dict[str, Any]:
    return decode.decode_inputs(model, message, specs, Regions())


X = {"X": spec("X", "FP32", -1, 4)}
TEXT = {"T": spec("T", "BYTES", -1)}


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ([-1, 4], "axis 0 is negative"),
        ([2**32 + 1, 4], "takes"),
        ([2**62, 4], "more than 2\\^63 bytes"),
        ([2**31, 2**31, 4], "expected 2 axes"),
        ([4], "expected 2 axes"),
        ([], "expected 2 axes"),
        ([1, 5], "axis 1 differs"),
        ([0, 2**63 - 1, 2**62], "expected 2 axes"),
    ],
)
def test_w1_hostile_shapes_are_refused_before_any_allocation(shape: list[int], complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        decode_inputs("m", request(("X", "FP32", shape), raw=[bytes(16)]), X)


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [0, 2**62, 4], [2**61, 2, 0]])
def test_w1_variable_axes_cannot_overflow_beside_a_zero(shape: list[int]) -> None:
    free = {"X": spec("X", "FP32", -1, -1, -1)}
    with pytest.raises(InvalidArgument, match="more than 2\\^63 bytes"):
        decode_inputs("m", request(("X", "FP32", shape), raw=[b""]), free)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (struct.pack("<I", 3) + b"ab", "too few for 2 BYTES elements"),
        (struct.pack("<I", 3) + b"abcd", "ends after 1 of 2"),
        (struct.pack("<I", 0xFFFFFFFF) + b"abcd", "element 0 claims 4294967295 bytes, 4 are left"),
        (struct.pack("<I", 4) + b"abcd", "ends after 1 of 2"),
        ((struct.pack("<I", 1) + b"a") * 3, "5 stray bytes after 2"),
        ((struct.pack("<I", 1) + b"a") * 2 + b"xyz", "3 stray bytes"),
    ],
)
def test_w2_malformed_bytes_framing_is_refused(raw: bytes, complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        decode_inputs("m", request(("T", "BYTES", [2]), raw=[raw]), TEXT)


@pytest.mark.parametrize("length", [0, 15, 17])
def test_w2_raw_length_must_equal_the_shape(length: int) -> None:
    with pytest.raises(InvalidArgument, match=f"has {length} raw bytes, shape \\[1, 4\\] takes 16"):
        decode_inputs("m", request(("X", "FP32", [1, 4]), raw=[bytes(length)]), X)


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_w3_bytes_survive_raw_and_typed(elements: list[bytes]) -> None:
    raw = b"".join(struct.pack("<I", len(e)) + e for e in elements)
    by_raw = decode_inputs("m", request(("T", "BYTES", [len(elements)]), raw=[raw]), TEXT)["T"]
    typed = request(("T", "BYTES", [len(elements)]))
    typed.inputs[0].contents.bytes_contents.extend(elements)
    by_field = decode_inputs("m", typed, TEXT)["T"]
    assert by_raw.tolist() == by_field.tolist() == elements
    assert encode_response("m", "", [(Wanted(TEXT["T"]), by_raw)]).raw_output_contents[0] == raw


def test_w4_zero_rows_keep_their_shape() -> None:
    array = decode_inputs("m", request(("X", "FP32", [0, 4]), raw=[b""]), X)["X"]
    assert array.shape == (0, 4)
    assert decode_inputs("m", request(("T", "BYTES", [0]), raw=[b""]), TEXT)["T"].shape == (0,)


AB = {"A": spec("A", "FP32", -1, 4), "B": spec("B", "FP32", -1, 4)}


def mixed(kind: str) -> pb.ModelInferRequest:
    one = bytes(16)
    message = request(("A", "FP32", [1, 4]), ("B", "FP32", [1, 4]))
    if kind == "A typed, B raw":
        message.inputs[0].contents.fp32_contents.extend([0.0] * 4)
        message.raw_input_contents.append(one)
    elif kind == "A both":
        message.inputs[0].contents.fp32_contents.extend([0.0] * 4)
        message.raw_input_contents.extend([one, one])
    elif kind == "one raw":
        message.raw_input_contents.append(one)
    elif kind == "three raw":
        message.raw_input_contents.extend([one] * 3)
    elif kind == "int_contents":
        for tensor in message.inputs:
            tensor.contents.int_contents.extend([0] * 4)
    elif kind == "three values":
        for tensor in message.inputs:
            tensor.contents.fp32_contents.extend([0.0] * 3)
    return message


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("A typed, B raw", "input 'A' has typed contents beside"),
        ("A both", "input 'A' has typed contents beside"),
        ("one raw", "input 'B' has no entry among 1 raw_input_contents"),
        ("three raw", "3 raw_input_contents for 2 inputs"),
        ("int_contents", "takes fp32_contents, not int_contents"),
        ("three values", "has 3 values in fp32_contents"),
    ],
)
def test_w5_raw_and_typed_mixtures_are_refused(kind: str, complaint: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint):
        decode_inputs("m", mixed(kind), AB)


def test_w6_sixteen_bit_floats_keep_every_bit() -> None:
    for datatype, raw in (("BF16", bytes.fromhex("803F0040")), ("FP16", bytes.fromhex("003C0040"))):
        specs = {"X": spec("X", datatype, -1, 2)}
        array = decode_inputs("m", request(("X", datatype, [1, 2]), raw=[raw]), specs)["X"]
        assert array.astype(np.float32).tolist() == [[1.0, 2.0]]
        assert encode_response("m", "", [(Wanted(specs["X"]), array)]).raw_output_contents[0] == raw


def test_w6_sixteen_bit_floats_have_no_typed_field() -> None:
    message = request(("X", "FP16", [1, 2]))
    message.inputs[0].contents.fp32_contents.extend([1.0, 2.0])
    with pytest.raises(InvalidArgument, match="no typed contents"):
        decode_inputs("m", message, {"X": spec("X", "FP16", -1, 2)})
    with pytest.raises(InvalidArgument, match="has 8 raw bytes"):
        decode_inputs("m", request(("X", "BF16", [1, 2]), raw=[bytes(8)]), {"X": spec("X", "BF16", -1, 2)})


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["A", "A"], "input 'A' is given twice"),
        (["A"], "missing input 'B'"),
        (["A", "B", "C"], "unexpected input 'C'; inputs are 'A', 'B'"),
        (["A", ""], "empty name"),
    ],
)
def test_w7_inputs_must_be_exactly_those_declared(names: list[str], complaint: str) -> None:
    message = request(*((n, "FP32", [1, 4]) for n in names), raw=[bytes(16)] * len(names))
    with pytest.raises(InvalidArgument, match=complaint):
        decode_inputs("m", message, AB)


def test_w7_another_dtype_is_named() -> None:
    message = request(("A", "INT32", [1, 4]), ("B", "FP32", [1, 4]), raw=[bytes(16)] * 2)
    with pytest.raises(InvalidArgument, match="model 'm': input 'A' has datatype 'INT32', expected FP32"):
        decode_inputs("m", message, AB)


@pytest.mark.parametrize(
    ("datatype", "field", "values"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-128, 127]),
        ("INT16", "int_contents", [-32768, 32767]),
        ("INT32", "int_contents", [-(2**31), 2**31 - 1]),
        ("INT64", "int64_contents", [-(2**63), 2**63 - 1]),
        ("UINT8", "uint_contents", [0, 255]),
        ("UINT16", "uint_contents", [0, 65535]),
        ("UINT32", "uint_contents", [0, 2**32 - 1]),
        ("UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("FP32", "fp32_contents", [1.5, -2.0]),
        ("FP64", "fp64_contents", [1.5, 1e300]),
    ],
)
def test_typed_contents_of_every_datatype(datatype: str, field: str, values: list[Any]) -> None:
    message = request(("X", datatype, [2]))
    getattr(message.inputs[0].contents, field).extend(values)
    array = decode_inputs("m", message, {"X": spec("X", datatype, -1)})["X"]
    assert array.dtype == BY_KSERVE[datatype].numpy
    assert array.tolist() == values


@pytest.mark.parametrize(
    ("datatype", "value"), [("INT8", 128), ("INT16", -32769), ("UINT8", 256), ("UINT16", 65536)]
)
def test_typed_values_out_of_range_are_refused(datatype: str, value: int) -> None:
    message = request(("X", datatype, [1]))
    field = "uint_contents" if datatype.startswith("U") else "int_contents"
    getattr(message.inputs[0].contents, field).append(value)
    with pytest.raises(InvalidArgument, match=f"outside {datatype}"):
        decode_inputs("m", message, {"X": spec("X", datatype, -1)})


def test_any_nonzero_byte_is_true() -> None:
    array = decode_inputs("m", request(("X", "BOOL", [3]), raw=[b"\0\1\7"]), {"X": spec("X", "BOOL", -1)})[
        "X"
    ]
    assert array.tolist() == [False, True, True]


def test_an_unknown_region_is_not_found_and_named_in_a_trailer() -> None:
    message = request(("X", "FP32", [1, 4]))
    message.inputs[0].parameters["shared_memory_region"].string_param = "régi\non"
    with pytest.raises(ModelNotFound, match="region 'régi\non' is not registered") as caught:
        decode_inputs("m", message, X)
    assert caught.value.trailers == (("reactant-unknown-region", "r\\xe9gi\\non"),)


def test_a_region_that_is_no_text_is_invalid() -> None:
    message = request(("X", "FP32", [1, 4]))
    message.inputs[0].parameters["shared_memory_region"].int64_param = 7
    with pytest.raises(
        InvalidArgument, match="model 'm': input 'X': 'shared_memory_region' must be string_param"
    ):
        decode_inputs("m", message, X)


def test_rows_must_agree_and_fit() -> None:
    pairs = [(AB["A"], np.zeros((2, 4))), (AB["B"], np.zeros((3, 4)))]
    with pytest.raises(InvalidArgument, match="input 'B' has 3 rows on its batch axis, input 'A' has 2"):
        batch_rows("m", pairs)
    batch = batch_rows("m", [(AB["A"], np.zeros((9, 4)))])
    assert batch == BatchRows("A", 9)
    check_batch("m", batch, None, (1, 16), pads=True)
    with pytest.raises(InvalidArgument, match="'A' has 9 rows, the largest compiled batch size is 8"):
        check_batch("m", batch, None, (1, 8), pads=True)
    check_batch("m", batch, None, (9, 16), pads=False)
    with pytest.raises(InvalidArgument, match=r"has 9 rows; an output has no batch axis.*: 1, 16"):
        check_batch("m", batch, None, (1, 16), pads=False)
    assert batch_rows("m", [(spec("Z", "FP32", 4, batch_axis=None), np.zeros(4))]) is None


def test_the_clients_own_tensor_is_named_when_preprocess_made_the_batch() -> None:
    with pytest.raises(InvalidArgument, match="input 'text' has 9 rows"):
        check_batch("m", BatchRows("ids", 9), BatchRows("text", 9), (8,), pads=True)
    with pytest.raises(InvalidArgument, match="input 'ids' has 9 rows"):
        check_batch("m", BatchRows("ids", 9), BatchRows("text", 1), (8,), pads=True)


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1))
def test_random_bytes_either_decode_or_are_refused(raw: bytes, count: int) -> None:
    try:
        array = decode_inputs("m", request(("T", "BYTES", [count]), raw=[raw]), TEXT)["T"]
    except InvalidArgument:
        return
    assert array.shape == (count,)
    assert sum(4 + len(e) for e in array) == len(raw)
