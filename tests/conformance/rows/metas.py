"""Metas: what holds for a model holds for a meta that calls it, and what is a meta's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np
from tests.conformance.row import NOT_STARTED, Code, Row, refused, served
from tests.conformance.rows import batches, contents, hooks, inputs, outputs, parameters
from tests.support.messages import Input, echo, floats, framed, infer, tensor, text
from tests.support.settings import VIA

from reactant_proto import inference_pb2 as pb


def _sent_to(model: str, request: pb.ModelInferRequest) -> pb.ModelInferRequest:
    request.model_name = model
    return request


def _twins(rows: Iterable[Row], *, own: bool = False, misuse: bool = False) -> list[Row]:
    """Each row of a model once more, for the meta that hands its requests to that model.

    Args:
        rows: rows of the table.
        own: the refusal is the meta's before it calls anything, so that it alone is named.
        misuse: what the model refuses is the meta's fault, not the client's: INTERNAL.
    """
    twins = []
    for row in rows:
        model = row.request().model_name
        if model not in VIA:
            continue
        via = f"via_{model}"
        names = [name.replace(f"'{model}'", f"'{via}'") if own else name for name in row.names]
        twins.append(
            replace(
                row,
                id=f"meta: {row.id}",
                request=partial(_again, via, row),
                code=Code.INTERNAL if misuse and row.code is Code.INVALID_ARGUMENT else row.code,
                names=(*names, f"'{via}'") if row.names else (),
            )
        )
    return twins


def _again(via: str, row: Row) -> pb.ModelInferRequest:
    return _sent_to(via, row.request())


def _fault(fault: str, rows: int = 2) -> pb.ModelInferRequest:
    return echo(rows, model="meta_faults", parameters={"fault": fault})


def _internal(fault: str, *names: str) -> Row:
    return Row(f"meta: {fault}", lambda: _fault(fault), Code.INTERNAL, ("'meta_faults'", *names))


def _alone(*elements: bytes) -> pb.ModelInferRequest:
    return infer("alone", tensor("text", text(*elements)))


def _is_served(row: Row) -> bool:
    return row.code is Code.OK


def _begins(*beginnings: str) -> Callable[[Row], bool]:
    return lambda row: row.id.startswith(beginnings)


# No program has the shape. A client may have sent it; a meta knows better what it calls.
_no_program = _begins(
    "variable axes: shape", "variable axes: zero", "variable axes: of two", "variable axes: no rows"
)
_of_declarations = _begins("inputs:", "W7", "datatype", "no batch axis", "fixed axis", "variable axes")
_of_layouts = _begins("W15")

ROWS: tuple[Row, ...] = (
    *_twins((r for r in inputs.ROWS if _of_declarations(r) and not _no_program(r)), own=True),
    *_twins(filter(_no_program, inputs.ROWS), misuse=True),
    *_twins(filter(_is_served, contents.ROWS)),
    *_twins(outputs.ROWS, own=True),
    *_twins(batches.ROWS, misuse=True),
    *_twins(filter(_is_served, parameters.ROWS)),
    *_twins(r for r in hooks.ROWS if not _of_layouts(r) or r.id.endswith("3 rows")),
    # What the meta does with the models it calls.
    served("meta: of a model's output", lambda: _fault("none"), {"Y": floats(2, start=1.0) * 2}),
    served("meta: a stage for each row", lambda: _fault("row_by_row", 9), {"Y": floats(9, start=1.0)}),
    served("meta: no rows, no stage", lambda: _fault("row_by_row", 0), {"Y": floats(0)}),
    served("meta: a stage without rows", lambda: _fault("no_rows"), {"Y": floats(0)}),
    served("meta: catches a refusal", lambda: _fault("catches"), {"Y": floats(2, start=1.0)}),
    refused(
        "meta: a refusal not caught", lambda: _fault("refused"), "'meta_faults'", "'echo_bytes'", "65 bytes"
    ),
    refused("meta: calls request.invalid", lambda: _fault("invalid"), "'meta_faults'", "not acceptable"),
    _internal("undeclared", "'add2'", "meta.calls", "'echo'", "'echo_bytes'", "'variants'"),
    _internal("wrong_name", "'echo'", "Z", "X"),
    _internal("missing", "'echo'", "nothing", "X"),
    _internal("extra", "'echo'", "X, Z"),
    _internal("not_a_dict", "'echo'", "list"),
    _internal("wrong_dtype", "'echo'", "'X'", "float64", "float32"),
    _internal("wrong_rank", "'echo'", "'X'", "[4]"),
    _internal("wrong_axis", "'echo'", "'X'", "[2, 8]"),
    _internal("ragged", "'echo'", "'X'", "no array"),
    _internal("too_many_rows", "'echo'", "'X'", "5 rows", "4"),
    _internal("no_variant", "'variants'", "'image'", "[1, 3, 2]", "[1, 2, 3]"),
    served("meta: text as str", lambda: _fault("text_as_str"), {"Y": floats(2, start=1.0)}),
    _internal("text_as_ints", "'echo_bytes'", "'text'", "int"),
    _internal("text_as_s", "'echo_bytes'", "'text'", "object array"),
    _internal("raise", "run", "ValueError", "no such word"),
    _internal("exit", "run", "SystemExit"),
    _internal("interrupt", "run", "KeyboardInterrupt"),
    _internal("cancelled", "run", "CancelledError"),
    _internal("stop_iteration", "run", "StopIteration"),
    _internal("returns_none", "run"),
    _internal("returns_wrong_name", "run", "Z", "Y"),
    _internal("returns_wrong_dtype", "run", "'Y'", "float64", "float32"),
    _internal("returns_wrong_axis", "run", "'Y'", "[2, 3]"),
    _internal("scratch_of_objects", "TypeError"),
    _internal("scratch_negative", "ValueError"),
    # A meta that calls nothing.
    served(
        "W3 meta that calls nothing",
        lambda: _alone(b"a\0", b"", b"\xff"),
        {"echo": text(b"a\0", b"", b"\xff")},
    ),
    served("W4 meta that calls nothing: no elements", _alone, {"echo": text()}),
    refused(
        "W2 meta that calls nothing",
        lambda: infer("alone", Input("text", "BYTES", [2], framed([b"ab"]))),
        "'alone'",
        "'text'",
    ),
    # A model that only metas may call.
    Row(
        "internal: unknown to clients",
        lambda: echo(model="hidden"),
        Code.NOT_FOUND,
        ("'hidden'",),
        NOT_STARTED,
    ),
    served(
        "internal: called by a meta",
        lambda: echo(2, model="via_hidden"),
        {"Y": floats(2, start=1.0) + np.array([1, 2, 3, 4], np.float32)},
    ),
)
