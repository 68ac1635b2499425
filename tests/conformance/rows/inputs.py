"""Names, datatypes and shapes of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from tests.conformance.row import Row, refused, served
from tests.support.messages import Input, floats, infer, tensor

from reactant_proto import inference_pb2 as pb

_ROW = bytes(16)


def _add2(*inputs: Input) -> pb.ModelInferRequest:
    return infer("add2", *inputs)


def _shape(shape: Sequence[int], raw: bytes = _ROW) -> pb.ModelInferRequest:
    return infer("echo", Input("X", "FP32", shape, raw))


def _image(height: int, width: int) -> pb.ModelInferRequest:
    return infer("variants", tensor("image", np.ones((1, height, width), np.float32)))


def _sequences(ids: Sequence[int], mask: Sequence[int]) -> pb.ModelInferRequest:
    """A request of two inputs that are compiled for lengths of 3 and of 5, both of the same."""
    return infer(
        "sequences",
        *(tensor(n, np.ones(shape, np.int32)) for n, shape in (("ids", ids), ("mask", mask))),
    )


def _sequences_of(rows: int, length: int) -> Row:
    return served(
        f"variable axes: two inputs, {rows} rows of {length}",
        lambda: _sequences((rows, length), (rows, length)),
        {"doubled": np.full((rows, length), 2, np.int32), "sum": np.full(rows, length, np.int32)},
    )


def _unbatched(length: int) -> pb.ModelInferRequest:
    return infer("unbatched_variants", tensor("X", np.arange(length, dtype=np.float32)))


def _padded(length: int) -> pb.ModelInferRequest:
    return infer("padded", tensor("X", np.ones((2, length), np.float32)))


_A, _B, _C = (tensor(name, floats(1, start=i)) for i, name in enumerate("ABC"))
_SUM = {"SUM": floats(1) + floats(1, start=1), "DIFF": floats(1) - floats(1, start=1)}

ROWS: tuple[Row, ...] = (
    served("inputs: as declared", lambda: _add2(_A, _B), _SUM),
    served("inputs: in another order", lambda: _add2(_B, _A), _SUM),
    refused("inputs: none", _add2, "'add2'", "'A'", "'B'"),
    refused("W7 missing", lambda: _add2(_A), "'add2'", "'B'"),
    refused("W7 duplicate", lambda: _add2(_A, _A), "'add2'", "'A'"),
    refused("W7 duplicate beside all", lambda: _add2(_A, _B, _A), "'add2'", "'A'"),
    refused("W7 extra", lambda: _add2(_A, _B, _C), "'add2'", "'C'"),
    refused("W7 other case", lambda: _add2(_A, tensor("b", floats())), "'add2'", "'b'"),
    refused("W7 empty name", lambda: _add2(_A, tensor("", floats())), "'add2'", "empty name"),
    refused("W7 empty name beside all", lambda: _add2(_A, _B, tensor("", floats())), "'add2'", "empty name"),
    refused(
        "W7 datatype: INT32 for FP32",
        lambda: _add2(Input("A", "INT32", [1, 4], _ROW), _B),
        "'add2'",
        "'A'",
        "INT32",
        "FP32",
    ),
    refused("datatype: none", lambda: infer("echo", Input("X", "", [1, 4], _ROW)), "'echo'", "'X'", "FP32"),
    refused("datatype: lower case", lambda: infer("echo", Input("X", "fp32", [1, 4], _ROW)), "'X'", "fp32"),
    refused("datatype: unheard of", lambda: infer("echo", Input("X", "FP8", [1, 4], bytes(4))), "'X'", "FP8"),
    refused("datatype: BYTES for FP32", lambda: infer("echo", Input("X", "BYTES", [1, 4], _ROW)), "'X'"),
    refused("W1 negative", lambda: _shape([-1, 4]), "'echo'", "'X'", "-1"),
    refused("W1 negative twice: the product is positive", lambda: _shape([-1, -4]), "'echo'", "'X'"),
    refused("W1 wraps 32 bits", lambda: _shape([2**32 + 1, 4]), "'echo'", "'X'", str(2**32 + 1)),
    refused("W1 wraps 64 bits", lambda: _shape([2**62, 4]), "'echo'", "'X'", str(2**62)),
    refused("W1 wraps 64 bits, three axes", lambda: _shape([2**31, 2**31, 4]), "'echo'", "'X'"),
    refused("W1 largest", lambda: _shape([2**63 - 1, 4]), "'echo'", "'X'"),
    refused("W1 smallest", lambda: _shape([-(2**63), 4]), "'echo'", "'X'"),
    refused("W1 wraps to nothing: no bytes", lambda: _shape([2**60, 4], b""), "'echo'", "'X'"),
    refused("W1 zero rows with bytes", lambda: _shape([0, 4]), "'echo'", "'X'"),
    refused("W1 one axis", lambda: _shape([4]), "'echo'", "'X'", "[4]"),
    refused("W1 no axes", lambda: _shape([]), "'echo'", "'X'", "[]"),
    refused("rank: three", lambda: _shape([1, 4, 1]), "'echo'", "'X'", "[1, 4, 1]"),
    refused("rank: a hundred thousand axes", lambda: _shape([1] * 100_000, bytes(4)), "'echo'", "'X'"),
    refused("fixed axis: too long", lambda: _shape([1, 5], bytes(20)), "'echo'", "'X'", "5", "4"),
    refused("fixed axis: too short, same bytes", lambda: _shape([2, 2]), "'echo'", "'X'"),
    refused("fixed axis: zero", lambda: _shape([1, 0], b""), "'echo'", "'X'"),
    refused("fixed axis: transposed", lambda: _shape([4, 1]), "'echo'", "'X'"),
    refused(
        "fixed axis: of a model without batch axis",
        lambda: infer("unbatched", tensor("X", np.zeros(4, np.float32))),
        "'unbatched'",
        "'X'",
    ),
    served(
        "no batch axis",
        lambda: infer("unbatched", tensor("X", np.array([1, 2, 3], np.float32))),
        {"Y": np.array([2, 4, 6], np.float32)},
    ),
    served("variable axes: first shape", lambda: _image(2, 3), {"total": np.array([6], np.float32)}),
    served("variable axes: second shape", lambda: _image(4, 4), {"total": np.array([16], np.float32)}),
    refused("variable axes: shape of no program", lambda: _image(3, 2), "'variants'", "'image'", "[1, 3, 2]"),
    refused("variable axes: zero", lambda: _image(0, 3), "'variants'", "'image'"),
    refused(
        "variable axes: overflow",
        lambda: infer("variants", Input("image", "FP32", [1, 2**31, 2**31], _ROW)),
        "'variants'",
        "'image'",
    ),
    *(_sequences_of(rows, length) for rows in (0, 1, 2) for length in (3, 5)),
    refused(
        "variable axes: of two inputs, each of another program",
        lambda: _sequences((1, 3), (1, 5)),
        "'sequences'",
        "'ids' [1, 3]",
        "'mask' [1, 5]",
        "[1, 3]; 'ids' [1, 5]",
    ),
    refused(
        "variable axes: of two inputs, no program", lambda: _sequences((1, 4), (1, 4)), "'sequences'", "'ids'"
    ),
    refused(
        "variable axes: of two inputs, other rows", lambda: _sequences((1, 3), (2, 3)), "'mask'", "'ids'"
    ),
    refused(
        "variable axes: of two inputs, too many rows", lambda: _sequences((3, 3), (3, 3)), "'ids'", "3 rows"
    ),
    refused(
        "variable axes: no rows of no program", lambda: _sequences((0, 4), (0, 4)), "'sequences'", "[0, 4]"
    ),
    *(
        served(
            f"variable axes: without a batch axis, {length}",
            partial(_unbatched, length),
            {"last": np.array([length - 1], np.float32)},
        )
        for length in (2, 7)
    ),
    refused(
        "variable axes: without a batch axis, no program", lambda: _unbatched(3), "'X' [3]", "[2]", "[7]"
    ),
    *(
        served(
            f"variable axes: a hook makes {length} fit",
            partial(_padded, length),
            {"total": np.full(2, length, np.float32)},
        )
        for length in (1, 4, 5, 8)
    ),
    refused(
        "variable axes: a hook makes no program fit", lambda: _padded(9), "'padded'", "'X' [2, 9]", "[1, 8]"
    ),
)
