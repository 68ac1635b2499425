"""What is read off a request without decoding it agrees with the decoder."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactant_gateway.forward import peek as module
from reactant_gateway.forward.peek import PEEK_BYTES, Malformed, Peeked, batch_rows, inflate_prefix, peek
from reactant_proto import inference_pb2 as pb

names = st.text("abm0_-./\u00e9\u0263", min_size=1, max_size=20)
regions = st.sampled_from(["r1", "r2", "rɣ"])


@st.composite
def tensors(draw: Any) -> pb.ModelInferRequest.InferInputTensor:
    tensor = pb.ModelInferRequest.InferInputTensor(
        name=draw(names), datatype="FP32", shape=draw(st.lists(st.integers(0, 2**31 - 1), max_size=4))
    )
    for key in draw(st.lists(st.sampled_from(["a", "shared_memory_byte_size"]), unique=True)):
        tensor.parameters[key].int64_param = draw(st.integers(-(2**63), 2**63 - 1))
    if draw(st.booleans()):
        tensor.parameters["shared_memory_region"].string_param = draw(regions)
    if draw(st.booleans()):
        tensor.contents.fp32_contents.extend([0.5] * draw(st.integers(0, 40)))
    return tensor


@st.composite
def requests(draw: Any) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(
        model_name=draw(names), model_version=draw(st.text(max_size=3)), id=draw(st.text(max_size=200))
    )
    for key in draw(st.lists(names, max_size=3, unique=True)):
        request.parameters[key].string_param = draw(st.text(max_size=10))
    request.inputs.extend(draw(st.lists(tensors(), max_size=3)))
    for name in draw(st.lists(names, max_size=2)):
        output = request.outputs.add(name=name)
        if draw(st.booleans()):
            output.parameters["shared_memory_region"].string_param = draw(regions)
    request.raw_input_contents.extend(draw(st.lists(st.binary(max_size=300), max_size=3)))
    return request


def regions_of(request: pb.ModelInferRequest) -> set[str]:
    tensors: list[Any] = [*request.inputs, *request.outputs]
    key = "shared_memory_region"
    return {tensor.parameters[key].string_param for tensor in tensors if key in tensor.parameters}


def check(found: Peeked, request: pb.ModelInferRequest) -> None:
    assert (found.model, found.id.decode()) == (request.model_name, request.id)
    assert set(found.regions) == regions_of(request)


@pytest.mark.slow
@given(requests())
def test_every_prefix_gives_the_truth_or_asks_for_more(request: pb.ModelInferRequest) -> None:
    data = request.SerializeToString()
    framed = b"\0abcd" + data
    whole = peek(framed, 5, len(framed))
    assert whole is not None
    check(whole, request)
    decided = False
    for have in range(5, len(framed)):
        found = peek(framed[:have], 5, len(framed))
        if found is not None:
            check(found, request)
            decided = True
        else:
            assert not decided
    # Tensor contents are never waited for.
    raw = bytes(pb.ModelInferRequest(raw_input_contents=request.raw_input_contents).SerializeToString())
    if len(raw) > 1:
        assert peek(framed[: len(framed) - len(raw) + 1], 5, len(framed)) is not None


@pytest.mark.slow
@given(requests(), st.randoms(use_true_random=False))
def test_fields_may_come_in_any_order_before_the_contents(
    request: pb.ModelInferRequest, order: random.Random
) -> None:
    raw = list(request.raw_input_contents)
    del request.raw_input_contents[:]
    parts = [
        pb.ModelInferRequest(**{field.name: value}).SerializeToString()
        for field, value in request.ListFields()
        if field.name not in ("inputs", "outputs", "parameters")
    ]
    parts += [pb.ModelInferRequest(inputs=[tensor]).SerializeToString() for tensor in request.inputs]
    parts += [pb.ModelInferRequest(outputs=[output]).SerializeToString() for output in request.outputs]
    order.shuffle(parts)
    data = b"".join((*parts, pb.ModelInferRequest(raw_input_contents=raw).SerializeToString()))
    found = peek(data, 0, len(data))
    assert found is not None
    check(found, pb.ModelInferRequest.FromString(data))


@pytest.mark.slow
@given(requests(), st.data())
def test_rows_are_those_of_the_batch_axis(request: pb.ModelInferRequest, data: Any) -> None:
    axis = data.draw(st.integers(0, 4))
    encoded = request.SerializeToString()
    found = peek(encoded, 0, len(encoded))
    assert found is not None
    for tensor in request.inputs:
        first = next(t for t in request.inputs if t.name == tensor.name)
        want = first.shape[axis] if axis < len(first.shape) else None
        assert batch_rows(encoded, 0, found.end, tensor.name.encode(), axis) == want
    assert batch_rows(encoded, 0, found.end, b"\0none", axis) is None


def unpacked(shape: Sequence[int]) -> bytes:
    """An input whose shape comes number by number, as proto2 encoders write it."""
    dims = b"".join(b"\x18" + varint(dim) for dim in shape)
    tensor = b"\x0a\x01x" + dims + b"\x12\x04FP32"
    return b"\x0a\x01m" + b"\x2a" + varint(len(tensor)) + tensor


def varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


@pytest.mark.parametrize(
    ("shape", "axis", "rows"),
    [
        ((3, 4), 0, 3),
        ((3, 400), 1, 400),
        ((3,), 1, None),
        ((), 0, None),
        ((-1, 2), 0, None),
        ((2**31, 2), 0, None),
        ((2**31 - 1, 2), 0, 2**31 - 1),
    ],
)
def test_an_unpacked_shape_is_read_too(shape: tuple[int, ...], axis: int, rows: int | None) -> None:
    data = unpacked(shape)
    assert list(pb.ModelInferRequest.FromString(data).inputs[0].shape) == list(shape)
    assert batch_rows(data, 0, len(data), b"x", axis) == rows


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 300))
def test_junk_is_malformed_or_nothing_worse(junk: bytes, start: int, extra: int) -> None:
    start = min(start, len(junk))
    try:
        found = peek(junk, start, len(junk) + extra)
    except Malformed:
        return
    if found is not None:
        assert found.end <= len(junk)
        try:
            batch_rows(junk, start, found.end, found.model.encode(), 0)
        except Malformed:
            return


@pytest.mark.slow
@given(requests(), st.data())
def test_a_spoilt_request_is_malformed_or_nothing_worse(request: pb.ModelInferRequest, data: Any) -> None:
    spoilt = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 5))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    test_junk_is_malformed_or_nothing_worse.hypothesis.inner_test(bytes(spoilt), 0, 0)  # type: ignore[attr-defined]


MALFORMED = {
    "a group": b"\x0b",
    "wire type 6": b"\x0e",
    "a number without end": b"\x88" * 11,
    "longer than the message": b"\x0a\x7fm",
    "a length of 2**63": b"\x0a" + b"\xff" * 9 + b"\x01",
    "a name that is not UTF-8": b"\x0a\x01\xff",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_no_message_can_be_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        peek(data, 0, len(data))


def test_a_long_field_before_the_contents_is_decided_at_64_kib() -> None:
    request = pb.ModelInferRequest(model_name="m")
    tensor = request.inputs.add(name="x", shape=[7, 1])
    tensor.contents.bytes_contents.append(bytes(300_000))
    data = request.SerializeToString()
    assert peek(data[: PEEK_BYTES - 1], 0, len(data)) is None
    found = peek(data[:PEEK_BYTES], 0, len(data))
    assert found is not None
    assert found.model == "m"
    assert batch_rows(data[:PEEK_BYTES], 0, found.end, b"x", 0) == 7


@pytest.mark.parametrize(("compress", "encoding"), [(gzip.compress, b"gzip"), (zlib.compress, b"deflate")])
def test_no_more_is_inflated_than_is_looked_at(compress: Callable[[bytes], bytes], encoding: bytes) -> None:
    bomb = compress(bytes(20_000_000))
    assert inflate_prefix(bomb, encoding) == bytes(PEEK_BYTES)
    assert inflate_prefix(bomb[:20], encoding) is not None
    with pytest.raises(Malformed):
        inflate_prefix(b"\xff" * 20, encoding)
    assert inflate_prefix(bomb, b"snappy") is None


def test_the_fields_are_those_of_the_protocol() -> None:
    numbers = {f.name: f.number << 3 | 2 for f in pb.ModelInferRequest.DESCRIPTOR.fields}
    want = {"model_name": "_MODEL_NAME", "id": "_ID", "inputs": "_INPUT", "outputs": "_OUTPUT"}
    assert all(numbers[name] == getattr(module, constant) for name, constant in want.items())
    assert numbers["raw_input_contents"] == module._RAW
