"""The private descriptor pool that every message of ReactantServer lives in.

Triton's and KServe's own clients define the same `inference.*` names. A descriptor pool takes a name only
once, so our stubs stay out of protobuf's default pool: a model hook may then import either client in the
process that serves the model.
"""

from __future__ import annotations

from typing import Any, Final, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message, reflection
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.internal import enum_type_wrapper

POOL: Final = descriptor_pool.DescriptorPool()

_WELL_KNOWN = "google/protobuf/"


def load(serialized: bytes, module: str, namespace: dict[str, Any]) -> FileDescriptor:
    """Add one .proto file to `POOL` and put its messages and enums into a module.

    Called by the generated modules only, after they imported those of the files they depend on.

    Args:
        serialized: the FileDescriptorProto, as protoc encoded it.
        module: name of the importing module, where pickle finds the classes again.
        namespace: that module's globals.

    Raises:
        TypeError: the pool holds another file, message or enum of the same name.
    """
    for dependency in descriptor_pb2.FileDescriptorProto.FromString(serialized).dependency:
        if dependency.startswith(_WELL_KNOWN):
            _copy_from_default(dependency)
    file = POOL.AddSerializedFile(serialized)
    for name, enum in file.enum_types_by_name.items():
        namespace[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        namespace.update({value.name: value.number for value in enum.values})
    for name, descriptor in file.message_types_by_name.items():
        namespace[name] = _message_class(descriptor, module, "")
    return file


def _message_class(descriptor: Descriptor, module: str, outer: str) -> type[message.Message]:
    # protobuf's own builder also enters each class into the default symbol database, and with the pure
    # Python implementation that puts its descriptor into the default pool.
    qualified = outer + descriptor.name
    attributes: dict[str, Any] = {
        nested.name: _message_class(nested, module, f"{qualified}.") for nested in descriptor.nested_types
    }
    attributes |= {
        "DESCRIPTOR": descriptor,
        "__module__": module,
        "__qualname__": qualified,
        "__reduce__": _reduce,
    }
    created = reflection.GeneratedProtocolMessageType(descriptor.name, (message.Message,), attributes)
    return cast("type[message.Message]", created)


def _reduce(self: message.Message) -> tuple[type[message.Message], tuple[()], object]:
    # protobuf's own looks a nested class up by name in the default pool: it would find nothing there, or
    # another client's class of that name.
    return type(self), (), self.__getstate__()


def _copy_from_default(name: str) -> None:
    file = descriptor_pool.Default().FindFileByName(name)
    for dependency in file.dependencies:
        _copy_from_default(dependency.name)
    POOL.AddSerializedFile(file.serialized_pb)
