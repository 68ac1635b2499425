"""Where the elements of an input stand, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from tests.conformance.row import Row, refused, served
from tests.support.messages import Input, floats, framed, infer, tensor, text

from reactant_core.bundle.dtypes import BY_KSERVE, DType
from reactant_proto import inference_pb2 as pb

_ONE = [1.0, 2.0, 3.0, 4.0]
_Y = {"Y": np.array([_ONE], np.float32)}
_A, _B = tensor("A", floats(1)), tensor("B", floats(1))
_A_TYPED = Input("A", "FP32", [1, 4], typed={"fp32_contents": _ONE})
_B_TYPED = Input("B", "FP32", [1, 4], typed={"fp32_contents": _ONE})


def _raw(raw: bytes) -> pb.ModelInferRequest:
    return infer("echo", Input("X", "FP32", [1, 4], raw))


def _typed(**typed: Sequence[Any]) -> pb.ModelInferRequest:
    return infer("echo", Input("X", "FP32", [1, 4], typed=typed))


def _bytes(count: int, raw: bytes) -> pb.ModelInferRequest:
    return infer("echo_bytes", Input("text", "BYTES", [count], raw))


def _half(model: str, datatype: str, raw: bytes | None, **typed: Sequence[Any]) -> pb.ModelInferRequest:
    return infer(model, Input("X", datatype, [1, 2], raw, typed or None))


_STRINGS: Mapping[str, tuple[bytes, ...]] = {
    "NUL at the end": (b"a\0",),
    "empty": (b"",),
    "not UTF-8": (b"\xff\xfe\0",),
    "UTF-8": ("é".encode(),),
    "only NULs": (b"\0\0\0",),
    "all at once": (b"a\0", b"", b"\xff\xfe\0", "é".encode()),
    "longest": (bytes(range(64)),),
}


def _string_rows() -> list[Row]:
    rows = []
    for name, elements in _STRINGS.items():
        expected = {"echo": text(*elements)}
        raw = Input("text", "BYTES", [len(elements)], framed(elements))
        typed = Input("text", "BYTES", [len(elements)], typed={"bytes_contents": elements})
        rows.append(served(f"W3 BYTES raw: {name}", partial(infer, "echo_bytes", raw), expected))
        rows.append(served(f"W3 BYTES typed: {name}", partial(infer, "echo_bytes", typed), expected))
    return rows


_TYPED_FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}


def _extreme(dtype: DType) -> NDArray[Any]:
    """The two values of a datatype most easily lost on the way, as [1, 2]."""
    match dtype.numpy.kind, dtype.kserve:
        case "b", _:
            values: Sequence[Any] = (True, False)
        case (("i" | "u"), _):
            values = (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
        case _, "FP16":
            values = (6e-8, -65504.0)
        case _, "BF16":
            values = (3.3e38, -1e-38)
        case _, "FP64":
            values = (1 + 2**-52, 1e300)
        case _:
            values = (1e-38, -0.0)
    return np.array([values], dtype.numpy)


EXTREMES = {name: _extreme(dtype) for name, dtype in BY_KSERVE.items() if dtype.itemsize}
"""A tensor [1, 2] per datatype but BYTES."""


def _raw_types() -> pb.ModelInferRequest:
    return infer("all_types", *(tensor(name, array) for name, array in EXTREMES.items()))


def _typed_types(**replaced: Input) -> pb.ModelInferRequest:
    inputs = {
        name: Input(name, name, [1, 2], typed={field: EXTREMES[name].ravel().tolist()})
        for name, field in _TYPED_FIELDS.items()
    }
    return infer("typed_types", *(inputs | replaced).values())


def _type_rows() -> list[Row]:
    rows = [
        served("every datatype raw", _raw_types, {f"{n}_out": a for n, a in EXTREMES.items()}),
        served("every datatype typed", _typed_types, {f"{n}_out": EXTREMES[n] for n in _TYPED_FIELDS}),
    ]
    for name, field in _TYPED_FIELDS.items():
        other = "fp64_contents" if field != "fp64_contents" else "fp32_contents"
        foreign = Input(name, name, [1, 2], typed={other: [1.0, 0.0]})
        rows.append(
            refused(
                f"W5 {other} for {name}",
                partial(_typed_types, **{name: foreign}),
                "'typed_types'",
                f"'{name}'",
                other,
            )
        )
    for name, value in {"INT8": 128, "INT16": -(2**15) - 1, "UINT8": 256, "UINT16": 2**16}.items():
        beyond = Input(name, name, [1, 2], typed={_TYPED_FIELDS[name]: [value, 0]})
        rows.append(
            refused(
                f"typed {name} holds {value}",
                partial(_typed_types, **{name: beyond}),
                "'typed_types'",
                f"'{name}'",
            )
        )
    return rows


ROWS: tuple[Row, ...] = (
    *(
        refused(f"W2 FP32[1,4] of {size} bytes", partial(_raw, bytes(size)), "'echo'", "'X'", f"{size}")
        for size in (0, 1, 15, 17, 32)
    ),
    refused(
        "W2 BYTES[2]: prefix 3 before 2 bytes", lambda: _bytes(2, framed([b"a"]) + b"\3\0\0\0xy"), "'text'"
    ),
    refused(
        "W2 BYTES[2]: prefix 0xFFFFFFFF", lambda: _bytes(2, framed([b"a"]) + b"\xff\xff\xff\xffxy"), "'text'"
    ),
    refused("W2 BYTES[2]: one element", lambda: _bytes(2, framed([b"ab"])), "'echo_bytes'", "'text'"),
    refused("W2 BYTES[2]: three elements", lambda: _bytes(2, framed([b"a", b"b", b"c"])), "'text'"),
    refused("W2 BYTES[2]: three stray bytes", lambda: _bytes(2, framed([b"a", b"b"]) + b"xyz"), "'text'"),
    refused("W2 BYTES[2]: half a prefix", lambda: _bytes(2, framed([b"abcd"]) + b"\1\0"), "'text'"),
    refused("W2 BYTES[2]: nothing", lambda: _bytes(2, b""), "'text'"),
    refused("W2 BYTES[0]: one element", lambda: _bytes(0, framed([b"a"])), "'text'"),
    refused("W2 BYTES[2^62]", lambda: _bytes(2**62, framed([b"a"])), "'text'"),
    *_string_rows(),
    served("typed FP32", lambda: _typed(fp32_contents=_ONE), _Y),
    served("raw FP32", lambda: _raw(np.array(_ONE, np.float32).tobytes()), _Y),
    refused("W5 A typed, B raw", lambda: infer("add2", _A_TYPED, _B), "'add2'"),
    refused("W5 A raw, B typed", lambda: infer("add2", _A, _B_TYPED), "'add2'"),
    refused(
        "W5 A both ways",
        lambda: infer("add2", Input("A", "FP32", [1, 4], bytes(16), {"fp32_contents": _ONE}), _B),
        "'add2'",
        "'A'",
    ),
    refused(
        "W5 both typed, and raw for both",
        lambda: infer("add2", _A_TYPED, _B_TYPED, extra_raw=[bytes(16), bytes(16)]),
        "'add2'",
        "'A'",
    ),
    refused(
        "W5 two inputs, one raw slot",
        lambda: infer("add2", _A, Input("B", "FP32", [1, 4])),
        "'add2'",
        "1",
        "2",
    ),
    refused(
        "W5 two inputs, three raw slots",
        lambda: infer("add2", _A, _B, extra_raw=[bytes(16)]),
        "'add2'",
        "3",
        "2",
    ),
    refused("W5 two inputs, an empty third slot", lambda: infer("add2", _A, _B, extra_raw=[b""]), "'add2'"),
    refused("W5 no inputs, one raw slot", lambda: infer("add2", extra_raw=[bytes(16)]), "'add2'"),
    refused(
        "W5 int_contents for FP32", lambda: _typed(int_contents=[1, 2, 3, 4]), "'echo'", "'X'", "int_contents"
    ),
    refused(
        "W5 fp64_contents for FP32 alone",
        lambda: _typed(fp64_contents=_ONE),
        "'echo'",
        "'X'",
        "fp64_contents",
    ),
    refused(
        "W5 two typed fields",
        lambda: _typed(fp32_contents=_ONE, int_contents=[1]),
        "'echo'",
        "'X'",
        "int_contents",
    ),
    refused("W5 three values for [1,4]", lambda: _typed(fp32_contents=_ONE[:3]), "'echo'", "'X'", "3"),
    refused("W5 five values for [1,4]", lambda: _typed(fp32_contents=[*_ONE, 5.0]), "'echo'", "'X'", "5"),
    refused("W5 no values at all", lambda: infer("echo", Input("X", "FP32", [1, 4])), "'echo'", "'X'"),
    refused("W5 empty contents", _typed, "'echo'", "'X'"),
    served(
        "W6 BF16 raw",
        lambda: _half("echo_bf16", "BF16", bytes.fromhex("803F0040")),
        {"Y": np.array([[1, 2]], ml_dtypes.bfloat16)},
    ),
    served(
        "W6 FP16 raw",
        lambda: _half("echo_f16", "FP16", bytes.fromhex("003C0040")),
        {"Y": np.array([[1, 2]], np.float16)},
    ),
    served(
        "W6 BF16 raw: NaN payload",
        lambda: _half("echo_bf16", "BF16", bytes.fromhex("A1FFFF7F")),
        {"Y": np.frombuffer(bytes.fromhex("A1FFFF7F"), ml_dtypes.bfloat16).reshape(1, 2)},
    ),
    refused(
        "W6 FP16 in fp32_contents", lambda: _half("echo_f16", "FP16", None, fp32_contents=[1.0, 2.0]), "'X'"
    ),
    refused(
        "W6 BF16 in fp32_contents", lambda: _half("echo_bf16", "BF16", None, fp32_contents=[1.0, 2.0]), "'X'"
    ),
    refused("W6 BF16 of 8 bytes", lambda: _half("echo_bf16", "BF16", bytes(8)), "'echo_bf16'", "'X'", "8"),
    refused("W6 FP16 of 8 bytes", lambda: _half("echo_f16", "FP16", bytes(8)), "'echo_f16'", "'X'", "8"),
    served(
        "INT64 raw: beyond 32 bits",
        lambda: infer("echo_i64", tensor("X", np.array([[2**40 + 1, -(2**63)]], np.int64))),
        {"Y": np.array([[2**40 + 1, -(2**63)]], np.int64)},
    ),
    served(
        "INT64 typed: beyond 32 bits",
        lambda: infer(
            "echo_i64", Input("X", "INT64", [1, 2], typed={"int64_contents": [2**40 + 1, -(2**63)]})
        ),
        {"Y": np.array([[2**40 + 1, -(2**63)]], np.int64)},
    ),
    *_type_rows(),
)
