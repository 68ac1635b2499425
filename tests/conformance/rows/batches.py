"""Rows along the batch axis."""

from __future__ import annotations

import numpy as np
from tests.conformance.row import Row, refused, served
from tests.support.messages import Input, echo, floats, infer, tensor, text

from reactant_proto import inference_pb2 as pb

_SHIFT = np.array([[1], [2], [3]], np.float32)


def _columns(count: int) -> pb.ModelInferRequest:
    return infer("columns", tensor("X", floats(3, count)))


def _served_rows(rows: int) -> Row:
    return served(f"rows: {rows} of at most 4", lambda: echo(rows), {"Y": floats(rows, start=1.0)})


def _served_columns(count: int) -> Row:
    expected = {"Y": floats(3, count) + _SHIFT}
    return served(f"batch axis last: {count} of at most 4", lambda: _columns(count), expected)


ROWS: tuple[Row, ...] = (
    *(_served_rows(rows) for rows in (1, 2, 3, 4)),
    refused("rows: one too many", lambda: echo(5), "'echo'", "'X'", "4"),
    refused("rows: far too many", lambda: echo(1000), "'echo'", "'X'", "4"),
    refused("rows: too many behind a hook", lambda: echo(5, model="hook_faults"), "'hook_faults'", "4"),
    refused(
        "rows: inputs differ",
        lambda: infer("add2", tensor("A", floats(1)), tensor("B", floats(2))),
        "'add2'",
        "'B'",
    ),
    refused(
        "rows: one input has none",
        lambda: infer("add2", tensor("A", floats(1)), tensor("B", floats(0))),
        "'add2'",
        "'B'",
    ),
    refused(
        "rows: inputs of a hooked model differ",
        lambda: infer("blob", tensor("blob", text(b"a")), tensor("reply_size", np.zeros(2, np.int64))),
        "'blob'",
        "'reply_size'",
    ),
    *(_served_columns(count) for count in (1, 2, 3, 4)),
    refused("batch axis last: one too many", lambda: _columns(5), "'columns'", "'X'", "4"),
    served("W4 zero rows: FP32", lambda: echo(0), {"Y": floats(0)}),
    served("W4 zero rows: BYTES", lambda: infer("echo_bytes", tensor("text", text())), {"echo": text()}),
    served("zero rows: typed", lambda: infer("echo", Input("X", "FP32", [0, 4], typed={})), {"Y": floats(0)}),
    served("zero rows: batch axis last", lambda: _columns(0), {"Y": floats(3, 0)}),
    served(
        "zero rows: two outputs",
        lambda: infer("add2", tensor("A", floats(0)), tensor("B", floats(0)), outputs=["DIFF"]),
        {"DIFF": floats(0)},
    ),
    served(
        "zero rows: variable axes",
        lambda: infer("variants", tensor("image", np.ones((0, 4, 4), np.float32))),
        {"total": np.zeros(0, np.float32)},
    ),
)
