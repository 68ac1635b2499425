"""What hooks return and raise."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import ml_dtypes
import numpy as np
from tests.conformance.row import Code, Row, refused, served
from tests.support.messages import echo, floats, infer, tensor, text

from reactant_proto import inference_pb2 as pb

_STAGES = ("preprocess", "postprocess")
# Memory layouts a hook may give; what the client gets is the same.
_LAYOUTS = ("transposed", "strided", "reversed", "fortran", "big_endian", "read_only")
_RAISES = (
    "raise",
    "raise_long",
    "exit",
    "sys_exit",
    "keyboard_interrupt",
    "cancelled",
    "stop_iteration",
    "generator_exit",
    "timeout",
    "recursion",
)
_RETURNS = {
    "none": (),
    "not_a_mapping": (),
    "not_a_name": (),
    "wrong_name": ("Z",),
    "missing": (),
    "extra": ("Z",),
    "wrong_dtype": ("float64",),
    "wrong_rank": (),
    "wrong_axis": (),
    "ragged": (),
    "object": ("object",),
    "text": (),
}


def _fault(fault: str, stage: str, rows: int = 2, **more: str) -> pb.ModelInferRequest:
    return echo(rows, model="hook_faults", parameters={"fault": fault, "stage": stage, **more})


def _internal(fault: str, stage: str, names: Iterable[str]) -> Row:
    # An execution may have begun: nothing says that it was not started.
    known = ("'hook_faults'", stage, *names)
    return Row(f"hook: {stage} {fault}", lambda: _fault(fault, stage), Code.INTERNAL, known)


def _layout(fault: str, stage: str, rows: int) -> Row:
    expected = {"Y": floats(rows, start=1.0)}
    return served(f"W15 {stage} {fault}, {rows} rows", lambda: _fault(fault, stage, rows), expected)


def _text_as(kind: str) -> pb.ModelInferRequest:
    return infer("echo_bytes", tensor("text", text(b"a", b"bc\0")), parameters={"as": kind})


ROWS: tuple[Row, ...] = (
    *(_internal(fault, stage, ()) for stage in _STAGES for fault in _RAISES),
    *(_internal(fault, stage, names) for stage in _STAGES for fault, names in _RETURNS.items()),
    # Both a size that is padded and one that is not: they reach the program by different ways.
    *(_layout(fault, stage, rows) for stage in _STAGES for fault in _LAYOUTS for rows in (1, 3, 4)),
    served(
        "W15 preprocess broadcast",
        lambda: _fault("broadcast", "preprocess", 4),
        {"Y": np.repeat(floats(1, start=1.0), 4, axis=0)},
    ),
    served(
        "W15 postprocess broadcast",
        lambda: _fault("broadcast", "postprocess", 3),
        {"Y": np.repeat(floats(1, start=1.0), 3, axis=0)},
    ),
    *(
        refused(
            f"hook: {stage} calls request.invalid",
            partial(_fault, "invalid", stage, message="row 1: é is no number"),
            "'hook_faults'",
            "row 1: é is no number",
        )
        for stage in _STAGES
    ),
    refused(
        "hook: request.invalid with a long text",
        lambda: _fault("invalid", "preprocess", message="é" * 10_000),
        "'hook_faults'",
        "éé",
    ),
    refused(
        "hook: request.invalid about an element",
        lambda: infer("echo_bytes", tensor("text", text(b"fine", b"x" * 65))),
        "'echo_bytes'",
        "text[1]",
    ),
    served(
        "hook: BF16 through a hook",
        lambda: infer("bf16_hook", tensor("X", np.array([[1, 2]], ml_dtypes.bfloat16))),
        {"Y": np.array([[1, 2]], ml_dtypes.bfloat16)},
    ),
    *(
        Row(
            f"hook: BYTES as {kind}",
            partial(_text_as, kind),
            Code.INTERNAL,
            ("'echo_bytes'", "'echo'"),
        )
        for kind in ("S", "ints", "none")
    ),
    served(
        "M6 hook that imports Triton's client",
        lambda: echo(model="imports_triton", id="x"),
        {"Y": floats(1, start=1.0)},
    ),
)
