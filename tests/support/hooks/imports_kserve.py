"""A hook that registers package `inference` the way KServe's client does: other file, same names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def _their_message() -> Any:
    try:
        theirs: Any = import_module("kserve.protos.grpc_predict_v2_pb2")
    except ImportError:
        file = descriptor_pb2.FileDescriptorProto(
            name="grpc_predict_v2.proto", package="inference", syntax="proto3"
        )
        message = file.message_type.add(name="ModelInferRequest")
        message.field.add(name="model_name", number=1, label="LABEL_OPTIONAL", type="TYPE_STRING")
        service = file.service.add(name="GRPCInferenceService")
        service.method.add(
            name="ModelInfer",
            input_type=".inference.ModelInferRequest",
            output_type=".inference.ModelInferRequest",
        )
        # Adding the same file again is allowed, as a second import of a module is.
        descriptor_pool.Default().Add(file)
        found = descriptor_pool.Default().FindMessageTypeByName("inference.ModelInferRequest")
        return message_factory.GetMessageClass(found)
    return theirs.ModelInferRequest


_Request = _their_message()


def preprocess(inputs: dict[str, Any], request: Any) -> dict[str, Any]:
    assert _Request.FromString(_Request(model_name="m").SerializeToString()).model_name == "m"
    return inputs
