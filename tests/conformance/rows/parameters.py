"""Request parameters and the request's id."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.conformance.row import Row, refused, served
from tests.support.messages import Parameter, Uint, arrays, echo

from reactant_proto import inference_pb2 as pb

Told = dict[str, Any]


def _params(parameters: Mapping[str, Parameter | Uint] | None = None, **parts: Any) -> pb.ModelInferRequest:
    return echo(model="params", parameters=parameters, **parts)


def _told(check: Callable[[Told], None]) -> Callable[[pb.ModelInferResponse], None]:
    """Looks at what the hook was told."""
    return lambda response: check(json.loads(arrays(response)["told"][0]))


def _equal(**expected: Any) -> Callable[[pb.ModelInferResponse], None]:
    def check(told: Told) -> None:
        assert {key: told[key] for key in expected} == expected

    return _told(check)


def _within(low: float, high: float) -> Callable[[pb.ModelInferResponse], None]:
    def check(told: Told) -> None:
        assert low < told["seconds_left"] <= high

    return _told(check)


def _without_value() -> pb.ModelInferRequest:
    request = echo()
    request.parameters["mode"].SetInParent()
    return request


def _ok(id: str, given: Mapping[str, Parameter | Uint], /, **expected: Any) -> Row:  # noqa: A002
    return served(id, lambda: _params(given), check=_equal(**expected))


def _refused(id: str, parameters: Mapping[str, Parameter | Uint]) -> Row:  # noqa: A002
    return refused(id, lambda: echo(parameters=parameters), "'echo'", *(f"'{key}'" for key in parameters))


_CUSTOM: Mapping[str, Parameter | Uint] = {
    "string": "é \0 text",
    "empty": "",
    "bool": False,
    "int64": -1,
    "uint64": Uint(2**63),
    "double": 0.1,
    "infinite": float("inf"),
    "Timeout": 1,
    "sequence_id": 7,
    "ключ": True,
}
_CUSTOM_TOLD = {
    "string": ["str", "é \0 text"],
    "empty": ["str", ""],
    "bool": ["bool", False],
    "int64": ["int", -1],
    "uint64": ["int", 2**63],
    "double": ["float", "0.1"],
    "infinite": ["float", "inf"],
    "Timeout": ["int", 1],
    "sequence_id": ["int", 7],
    "ключ": ["bool", True],
}
_RESERVED: Mapping[str, Parameter | Uint] = {
    "timeout": 10_000_000,
    "priority": Uint(3),
    "triton_enable_empty_final_response": True,
    "mine": 1,
}

_IDS = {
    "with an accent": "rq-é",
    "empty": "",
    "spaces and line breaks": " \r\n\t ",
    "with a NUL": "a\0b",
    "of 10,000 characters": "ж" * 10_000,
    "outside the first plane": "🦊",
}

ROWS: tuple[Row, ...] = (
    *(served(f"W10 id {name}", partial(_params, id=id_), check=_equal(id=id_)) for name, id_ in _IDS.items()),
    *(served(f"W10 id {name}, no hook", partial(echo, id=id_)) for name, id_ in _IDS.items()),
    _ok("W10 parameters: all five types reach the hook", _CUSTOM, parameters=_CUSTOM_TOLD),
    _ok("W10 parameters: none", {}, parameters={}, priority=0),
    _ok("W10 parameters: reserved ones do not reach the hook", _RESERVED, parameters={"mine": ["int", 1]}),
    refused("parameters: no value", _without_value, "'echo'", "'mode'"),
    _ok("W11 priority uint64 1", {"priority": Uint(1)}, priority=1),
    _ok("W11 priority int64 1", {"priority": 1}, priority=1),
    _ok("priority 0", {"priority": 0}, priority=0),
    _ok("priority uint64 2^64 - 1", {"priority": Uint(2**64 - 1)}, priority=2**64 - 1),
    _refused("W11 priority int64 -1", {"priority": -1}),
    _refused("W11 priority string", {"priority": "1"}),
    _refused("priority bool", {"priority": True}),
    _refused("priority double", {"priority": 1.0}),
    served(
        "W11 timeout int64",
        lambda: _params({"timeout": 4_000_000}),
        check=_within(2.0, 4.0),
    ),
    served(
        "timeout later than the gRPC deadline",
        lambda: _params({"timeout": 3_600_000_000}),
        check=_within(1.0, 6.0),
    ),
    _refused("W11 timeout string", {"timeout": "50000"}),
    _refused("timeout uint64", {"timeout": Uint(50_000)}),
    _refused("timeout bool", {"timeout": True}),
    _refused("timeout double", {"timeout": 50_000.0}),
    _refused("timeout negative", {"timeout": -1}),
    _refused("W11 triton_foo", {"triton_foo": 1}),
    _refused("triton_final_response", {"triton_final_response": True}),
    _ok("W11 triton_enable_empty_final_response true", {"triton_enable_empty_final_response": True}),
    _ok("W11 triton_enable_empty_final_response false", {"triton_enable_empty_final_response": False}),
    _refused("triton_enable_empty_final_response string", {"triton_enable_empty_final_response": "true"}),
    _refused("triton_enable_empty_final_response int64", {"triton_enable_empty_final_response": 1}),
    _refused("shared-memory parameter of a request", {"shared_memory_region": "r"}),
)
