"""`key=value` arguments as the fields of a scheduling policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from reactant_cli.failure import USAGE, CommandFailure
from reactant_cli.shown import shown
from reactant_cli.suggest import near_names
from reactant_proto import gateway_pb2

_FIELDS = gateway_pb2.SchedulingPolicy.DESCRIPTOR.fields_by_name
_TRUTH = {"true": True, "false": False}


def policy_request(settings: Iterable[str]) -> gateway_pb2.SetSchedulingPolicyRequest:
    """The request that sets what `settings` say, each `key=value`. Whether a value is accepted the gateway
    decides; here it only has to be of the field's kind.

    Raises:
        CommandFailure: everything that is no setting, is said twice, or has a value of another kind.
    """
    request = gateway_pb2.SetSchedulingPolicyRequest()
    faults = []
    for setting in settings:
        key, separator, text = setting.partition("=")
        key, text = key.strip(), text.strip()
        if not separator:
            faults.append(f"{shown(setting)}: write it as key=value, such as hysteresis=0.2")
        elif key.partition(".")[0] == "models":
            faults.append(f"{shown(key)}: models are set one at a time, by `reactant gateway set-replicas`")
        elif key not in _FIELDS:
            near = near_names(key, _FIELDS, limit=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_FIELDS)}"
            faults.append(f"{shown(key)} is no setting; {hint}")
        elif key in request.update_mask.paths:
            faults.append(f"{key} is given twice")
        else:
            request.update_mask.paths.append(key)
            try:
                _set(request.policy, _FIELDS[key], text)
            except ValueError as error:
                faults.append(f"{key}: {shown(text)}; accepted is {error}")
    if faults:
        raise CommandFailure("; ".join(faults), USAGE)
    return request


def replicas(text: str) -> gateway_pb2.Replicas:
    """A count or `all`.

    Raises:
        ValueError: neither; says what is accepted.
    """
    if text == "all":
        return gateway_pb2.Replicas(all=True)
    if not text.isascii() or not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= 100_000:
        raise ValueError("all or a count from 1 to 100000")
    return gateway_pb2.Replicas(count=int(text))


def _set(policy: gateway_pb2.SchedulingPolicy, field: FieldDescriptor, text: str) -> None:
    if field.message_type is not None:
        getattr(policy, field.name).CopyFrom(replicas(text))
    else:
        setattr(policy, field.name, _value(field, text))


def _value(field: FieldDescriptor, text: str) -> Any:
    if field.type == FieldDescriptor.TYPE_BOOL:
        if text not in _TRUTH:
            raise ValueError("true or false")
        return _TRUTH[text]
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        try:
            return float(text)
        except ValueError:
            raise ValueError("a number") from None
    if field.type == FieldDescriptor.TYPE_UINT32:
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise ValueError("a whole number below a billion")
        return int(text)
    return text
