"""Which outputs a request asks for, and how."""

from __future__ import annotations

from tests.conformance.row import Code, Outputs, Row, refused, served
from tests.support.messages import Input, Parameter, Uint, echo, floats, infer, tensor

from reactant_proto import inference_pb2 as pb

_A, _B = tensor("A", floats(2)), tensor("B", floats(2, start=5))
_SUM, _DIFF = floats(2) + floats(2, start=5), floats(2) - floats(2, start=5)
REGION = "reactant-unknown-region"


def _asked(*outputs: str) -> pb.ModelInferRequest:
    return infer("add2", _A, _B, outputs=outputs)


def _served(id: str, outputs: Outputs) -> Row:  # noqa: A002
    return served(f"outputs: {id}", lambda: _asked(*outputs), outputs)


def _option(**parameters: Parameter | Uint) -> pb.ModelInferRequest:
    return echo(outputs=["Y"], output_parameters=parameters)


def _region(region: str) -> pb.ModelInferRequest:
    placed: dict[str, Parameter | Uint] = {"shared_memory_region": region, "shared_memory_byte_size": 16}
    return infer("echo", Input("X", "FP32", [1, 4], parameters=placed))


ROWS: tuple[Row, ...] = (
    _served("one", {"SUM": _SUM}),
    _served("the other", {"DIFF": _DIFF}),
    _served("both", {"SUM": _SUM, "DIFF": _DIFF}),
    _served("both, in the order asked", {"DIFF": _DIFF, "SUM": _SUM}),
    served("outputs: none listed gives all", lambda: infer("add2", _A, _B), {"SUM": _SUM, "DIFF": _DIFF}),
    refused("outputs: unknown", lambda: _asked("PRODUCT"), "'add2'", "'PRODUCT'"),
    refused("outputs: unknown beside known", lambda: _asked("SUM", "PRODUCT"), "'add2'", "'PRODUCT'"),
    refused("outputs: an input's name", lambda: _asked("A"), "'add2'", "'A'"),
    refused("outputs: empty name", lambda: _asked(""), "'add2'"),
    refused("outputs: duplicate", lambda: _asked("SUM", "SUM"), "'add2'", "'SUM'"),
    refused("outputs: classification", lambda: _option(classification=2), "'echo'", "'Y'", "classification"),
    refused("outputs: classification 0", lambda: _option(classification=0), "'Y'", "classification"),
    Row(
        "unknown region: input",
        lambda: _region("nowhere"),
        Code.NOT_FOUND,
        ("'echo'", "'X'", "nowhere"),
        {REGION: "nowhere"},
    ),
    Row(
        "unknown region: output",
        lambda: _option(shared_memory_region="nowhere", shared_memory_byte_size=Uint(16)),
        Code.NOT_FOUND,
        ("'echo'", "'Y'", "nowhere"),
        {REGION: "nowhere"},
    ),
    refused(
        "region of another type",
        lambda: infer("echo", Input("X", "FP32", [1, 4], parameters={"shared_memory_region": 7})),
        "'echo'",
        "'X'",
        "shared_memory_region",
    ),
)
