"""Messages from the private pool behave like any others."""

from __future__ import annotations

import copy
import pickle

import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as triton

from reactant_proto import POOL, inference_pb2, model_config_pb2


def request() -> inference_pb2.ModelInferRequest:
    made = inference_pb2.ModelInferRequest(model_name="m", id="7", raw_input_contents=[b"\x00\x01"])
    made.inputs.add(name="x", datatype="UINT8", shape=[1, 2]).parameters["p"].bool_param = True
    made.parameters["timeout"].int64_param = 5
    return made


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_of_top_level_message(protocol: int) -> None:
    restored = pickle.loads(pickle.dumps(request(), protocol))
    assert restored == request()
    assert type(restored) is inference_pb2.ModelInferRequest


def test_pickle_of_nested_message_is_ours_with_tritons_loaded() -> None:
    tensor = request().inputs[0]
    restored = pickle.loads(pickle.dumps(tensor))
    assert restored == tensor
    assert type(restored) is inference_pb2.ModelInferRequest.InferInputTensor
    assert type(restored) is not triton.ModelInferRequest.InferInputTensor


def test_copies() -> None:
    target = inference_pb2.ModelInferRequest(id="old")
    target.CopyFrom(request())
    assert target == request()
    assert copy.deepcopy(target) == target
    target.MergeFrom(request())
    assert [tensor.name for tensor in target.inputs] == ["x", "x"]
    with pytest.raises(TypeError):
        target.CopyFrom(triton.ModelInferRequest())


def test_presence() -> None:
    answer = inference_pb2.ModelStreamInferResponse()
    assert not answer.HasField("infer_response")
    answer.infer_response.SetInParent()
    assert answer.HasField("infer_response")
    parameter = inference_pb2.InferParameter()
    assert parameter.WhichOneof("parameter_choice") is None
    parameter.int64_param = 0
    assert parameter.HasField("int64_param")
    parameter.string_param = ""
    assert parameter.WhichOneof("parameter_choice") == "string_param"


def test_json() -> None:
    text = json_format.MessageToJson(request(), preserving_proto_field_name=True)
    assert '"model_name": "m"' in text
    assert json_format.Parse(text, inference_pb2.ModelInferRequest()) == request()


def test_enums_are_module_attributes() -> None:
    assert model_config_pb2.DataType.Name(model_config_pb2.TYPE_FP32) == "TYPE_FP32"
    assert model_config_pb2.ModelInstanceGroup.Kind.Value("KIND_GPU") == 1
    assert model_config_pb2.ModelInstanceGroup.KIND_GPU == 1


@pytest.mark.parametrize(
    "cls", [inference_pb2.ModelInferRequest, inference_pb2.ModelInferRequest.InferInputTensor]
)
def test_the_pool_knows_the_classes(cls: type[Message]) -> None:
    descriptor = POOL.FindMessageTypeByName(cls.DESCRIPTOR.full_name)
    assert message_factory.GetMessageClass(descriptor) is cls
    assert cls.DESCRIPTOR.file.pool is POOL
    assert cls.__module__ == "reactant_proto.inference_pb2"


def test_nothing_reaches_the_default_pool() -> None:
    default = descriptor_pool.Default()
    for file in (inference_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR):
        with pytest.raises(KeyError):
            default.FindFileByName(file.name)
    with pytest.raises(KeyError):
        default.FindMessageTypeByName("inference.IsSameIPCNamespaceRequest")
    theirs = default.FindMessageTypeByName("inference.ModelInferRequest")
    assert theirs is triton.ModelInferRequest.DESCRIPTOR
