"""Bytes of ours are read by Triton's client and the other way round, for every message and field."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from tritonclient.grpc import model_config_pb2 as triton_config
from tritonclient.grpc import service_pb2 as triton

from reactant_proto import POOL, inference_pb2, model_config_pb2

# Extremes of each type, so that a narrower or differently encoded one on the other side shows.
VALUES: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.TYPE_BOOL: (True,),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (2**32 - 1, 1),
    FieldDescriptor.TYPE_UINT64: (2**64 - 1, 1),
    FieldDescriptor.TYPE_FLOAT: (1.5, -0.25),
    FieldDescriptor.TYPE_DOUBLE: (0.1, -1e300),
    FieldDescriptor.TYPE_STRING: ("größe", "x"),
    FieldDescriptor.TYPE_BYTES: (b"\x00\xff", b"x"),
}

MESSAGES = [
    descriptor
    for file in (triton.DESCRIPTOR, triton_config.DESCRIPTOR)
    for descriptor in file.message_types_by_name.values()
]


def is_repeated(field: FieldDescriptor) -> bool:
    return isinstance(field.default_value, list)


def fill(message: Message, choice: int) -> None:
    """Set every field, and of each oneof the field number `choice` (modulo how many there are)."""
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is None or oneof.fields[choice % len(oneof.fields)].name == field.name:
            fill_field(message, cast(FieldDescriptor, field), choice)


def fill_field(message: Message, field: FieldDescriptor, choice: int) -> None:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        for number in VALUES[key.type]:
            if value.message_type is not None:
                target[number].SetInParent()
                fill(target[number], choice)
            else:
                target[number] = VALUES[value.type][0]
    elif field.message_type is not None:
        for element in (target.add(), target.add()) if is_repeated(field) else (target,):
            element.SetInParent()
            fill(element, choice)
    else:
        values = VALUES.get(field.type) or enum_numbers(field)
        if is_repeated(field):
            target.extend(values)
        else:
            setattr(message, field.name, values[-1])


def enum_numbers(field: FieldDescriptor) -> tuple[int, ...]:
    assert field.enum_type is not None
    return tuple(value.number for value in field.enum_type.values)[-2:]


def choices(descriptor: Descriptor) -> int:
    """Most alternatives of any oneof in a message or below it."""
    own = [len(oneof.fields) for oneof in descriptor.oneofs]
    below = [choices(field.message_type) for field in descriptor.fields if field.message_type is not None]
    return max([1, *own, *below])


@pytest.mark.parametrize("theirs", MESSAGES, ids=lambda descriptor: descriptor.name)
def test_every_message_crosses_both_ways(theirs: Descriptor) -> None:
    ours = message_factory.GetMessageClass(POOL.FindMessageTypeByName(theirs.full_name))
    other = message_factory.GetMessageClass(theirs)
    for choice in range(choices(theirs)):
        for writer, reader in ((ours, other), (other, ours)):
            written = writer()
            fill(written, choice)
            data = written.SerializeToString(deterministic=True)
            read = reader.FromString(data)
            read.DiscardUnknownFields()
            assert read.SerializeToString(deterministic=True) == data
            assert str(read) == str(written)


def test_fill_leaves_no_field_out() -> None:
    request = inference_pb2.ModelInferRequest()
    fill(request, 0)
    assert {field.name for field, _ in request.ListFields()} == set(request.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(
    ("choice", "value"),
    [
        ("bool_param", False),
        ("bool_param", True),
        ("int64_param", -1),
        ("int64_param", 0),
        ("string_param", ""),
        ("string_param", "größe"),
        ("double_param", 0.0),
        ("double_param", 0.1),
        ("uint64_param", 0),
        ("uint64_param", 2**64 - 1),
    ],
)
def test_parameter_choices_cross_defaults_included(choice: str, value: Any) -> None:
    ours = inference_pb2.ModelInferRequest(model_name="m")
    setattr(ours.parameters["p"], choice, value)
    theirs = triton.ModelInferRequest.FromString(ours.SerializeToString())
    assert theirs.parameters["p"].WhichOneof("parameter_choice") == choice
    assert getattr(theirs.parameters["p"], choice) == value
    assert inference_pb2.ModelInferRequest.FromString(theirs.SerializeToString()) == ours


def test_enum_values_cross_by_name() -> None:
    ours = model_config_pb2.ModelConfig(
        name="m",
        input=[
            model_config_pb2.ModelInput(
                name="x",
                data_type=model_config_pb2.TYPE_BF16,
                format=model_config_pb2.ModelInput.FORMAT_NHWC,
                dims=[-1, 3],
            )
        ],
    )
    theirs = triton_config.ModelConfig.FromString(ours.SerializeToString())
    assert theirs.input[0].data_type == triton_config.TYPE_BF16
    assert theirs.input[0].format == triton_config.ModelInput.FORMAT_NHWC
