"""Our .proto files against the descriptors of Triton's own client: equal, plus one RPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
from tritonclient.grpc import model_config_pb2 as triton_config
from tritonclient.grpc import service_pb2 as triton

from reactant_proto import inference_pb2, model_config_pb2

Facts = dict[str, tuple[object, ...]]

EXTRA: Facts = {
    "inference.IsSameIPCNamespaceRequest": ("message", False, ()),
    "inference.IsSameIPCNamespaceRequest.name": (
        "field",
        1,
        "TYPE_STRING",
        "",
        "LABEL_OPTIONAL",
        None,
        False,
    ),
    "inference.IsSameIPCNamespaceResponse": ("message", False, ()),
    "inference.IsSameIPCNamespaceResponse.same": ("field", 1, "TYPE_BOOL", "", "LABEL_OPTIONAL", None, False),
    "inference.GRPCInferenceService.IsSameIPCNamespace": (
        "rpc",
        ".inference.IsSameIPCNamespaceRequest",
        ".inference.IsSameIPCNamespaceResponse",
        False,
        False,
    ),
}


def as_proto(file: FileDescriptor) -> FileDescriptorProto:
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def facts(file: FileDescriptorProto) -> Facts:
    """Everything about a file that reaches the wire or the Python API, by full name."""
    found: Facts = {}
    for enum in file.enum_type:
        found |= enum_facts(enum, file.package)
    for message in file.message_type:
        found |= dict(message_facts(message, file.package))
    for service in file.service:
        name = f"{file.package}.{service.name}"
        found[name] = ("service",)
        for rpc in service.method:
            streaming = (rpc.client_streaming, rpc.server_streaming)
            found[f"{name}.{rpc.name}"] = ("rpc", rpc.input_type, rpc.output_type, *streaming)
    return found


def enum_facts(enum: EnumDescriptorProto, scope: str) -> Facts:
    return {f"{scope}.{enum.name}": ("enum", *((value.name, value.number) for value in enum.value))}


def message_facts(message: DescriptorProto, scope: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    name = f"{scope}.{message.name}"
    yield name, ("message", message.options.map_entry, tuple(oneof.name for oneof in message.oneof_decl))
    for enum in message.enum_type:
        yield from enum_facts(enum, name).items()
    for nested in message.nested_type:
        yield from message_facts(nested, name)
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
        kind = (field.Type.Name(field.type), field.type_name, field.Label.Name(field.label))
        yield f"{name}.{field.name}", ("field", field.number, *kind, oneof, field.proto3_optional)


def differences(ours: Facts, theirs: Facts) -> dict[str, tuple[object, object]]:
    """Full name to (ours, theirs) wherever they differ; None where one side has nothing."""
    return {
        name: (ours.get(name), theirs.get(name))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    }


def test_model_config_equals_tritons() -> None:
    ours = as_proto(model_config_pb2.DESCRIPTOR)
    theirs = as_proto(triton_config.DESCRIPTOR)
    assert (ours.package, ours.syntax) == (theirs.package, theirs.syntax)
    assert differences(facts(ours), facts(theirs)) == {}


def test_inference_equals_tritons_plus_one_rpc() -> None:
    ours = as_proto(inference_pb2.DESCRIPTOR)
    theirs = as_proto(triton.DESCRIPTOR)
    assert (ours.package, ours.syntax) == (theirs.package, theirs.syntax)
    assert differences(facts(ours), facts(theirs)) == {name: (fact, None) for name, fact in EXTRA.items()}


def test_the_surface_is_the_whole_one() -> None:
    found = facts(as_proto(triton.DESCRIPTOR)) | facts(as_proto(triton_config.DESCRIPTOR))
    kinds = [fact[0] for fact in found.values()]
    assert kinds.count("rpc") >= 20
    assert kinds.count("message") >= 100
    assert kinds.count("field") >= 300


def add_field(file: FileDescriptorProto) -> str:
    file.message_type[0].field.add(name="extra", number=77, label="LABEL_OPTIONAL", type="TYPE_BOOL")
    return f"inference.{file.message_type[0].name}.extra"


def stream(file: FileDescriptorProto) -> str:
    file.service[0].method[5].server_streaming = True
    return f"inference.GRPCInferenceService.{file.service[0].method[5].name}"


def retype(file: FileDescriptorProto) -> str:
    (message,) = (message for message in file.message_type if message.name == "ModelInferRequest")
    message.field[0].type = message.field[0].TYPE_BYTES
    return f"inference.ModelInferRequest.{message.field[0].name}"


def leave_oneof(file: FileDescriptorProto) -> str:
    (message,) = (message for message in file.message_type if message.name == "InferParameter")
    message.field[2].ClearField("oneof_index")
    return f"inference.InferParameter.{message.field[2].name}"


@pytest.mark.parametrize("change", [add_field, stream, retype, leave_oneof])
def test_the_comparison_sees_a_change(change: Callable[[FileDescriptorProto], str]) -> None:
    original = as_proto(triton.DESCRIPTOR)
    changed = as_proto(triton.DESCRIPTOR)
    name = change(changed)
    assert list(differences(facts(changed), facts(original))) == [name]
