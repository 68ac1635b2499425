"""Request parameters: the reserved ones are checked and taken out, the others are the hooks'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from reactant_core.errors import InvalidArgument
from reactant_proto import inference_pb2 as pb

Value = bool | int | str | float
_INT_CHOICES = ("int64_param", "uint64_param")
_NONE: Mapping[str, Value] = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True)
class RequestParameters:
    """What a request asks besides its tensors.

    Attributes:
        timeout_seconds: from `timeout` (microseconds on the wire); None when absent or 0.
        priority: from `priority`; handed to hooks, no effect on order.
        custom: everything not reserved, as plain Python values, read-only.
    """

    timeout_seconds: float | None
    priority: int
    custom: Mapping[str, Value]


NO_PARAMETERS = RequestParameters(None, 0, _NONE)


def parse_parameters(model: str, parameters: Mapping[str, pb.InferParameter]) -> RequestParameters:
    """Splits request-level parameters; raises InvalidArgument naming the parameter."""
    if not parameters:
        return NO_PARAMETERS
    timeout: float | None = None
    priority = 0
    custom: dict[str, Value] = {}
    for key, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        if choice is None:
            raise _invalid(model, key, "has no value")
        value: Value = getattr(parameter, choice)
        if key == "timeout":
            if choice != "int64_param" or not isinstance(value, int) or value < 0:
                raise _invalid(model, key, "must be int64_param, microseconds, 0 or more")
            timeout = value / 1e6 if value else None
        elif key == "priority":
            if choice not in _INT_CHOICES or not isinstance(value, int) or value < 0:
                raise _invalid(model, key, "must be uint64_param (or int64_param), 0 or more")
            priority = value
        elif key == "triton_enable_empty_final_response":
            if choice != "bool_param":
                raise _invalid(model, key, "must be bool_param")
        elif key.startswith(("triton_", "shared_memory_")):
            raise _invalid(model, key, "is reserved and not known to this server")
        else:
            custom[key] = value
    return RequestParameters(timeout, priority, MappingProxyType(custom))


def soonest(timeout: float | None, remaining: float | None) -> float | None:
    """Seconds a request has, None for ever: the less of `timeout` and the time to its gRPC deadline."""
    if timeout is None or (remaining is not None and remaining < timeout):
        return remaining
    return timeout


def _invalid(model: str, key: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"model '{model}': request parameter '{key}' {problem}")
