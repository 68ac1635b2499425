"""Server reflection describes every service of the port."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2 as rpb
from grpc_reflection.v1alpha import reflection_pb2_grpc
from tests.support.target import Target

from reactant_proto import inference_pb2 as ours

SERVICES = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
    "reactant.ControlService",
}

GATEWAY_SERVICES = SERVICES | {"reactant.GatewayControlService"}


def services(target: Target) -> set[str]:
    """What the port must serve."""
    return GATEWAY_SERVICES if target.behind_gateway else SERVICES


def asked(target: Target, **question: str) -> rpb.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(target.client.channel)

    def requests() -> Iterator[rpb.ServerReflectionRequest]:
        yield rpb.ServerReflectionRequest(**question)

    (answer,) = stub.ServerReflectionInfo(requests(), timeout=10)
    return answer


def listed(target: Target) -> set[str]:
    return {service.name for service in asked(target, list_services="").list_services_response.service}


def test_every_service_is_listed(target: Target) -> None:
    assert listed(target) == services(target)


Files = dict[str, descriptor_pb2.FileDescriptorProto]


def _fetch(target: Target, files: Files, **question: str) -> None:
    """Adds the file asked for and all it imports, imports first."""
    for data in asked(target, **question).file_descriptor_response.file_descriptor_proto:
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
        for imported in file.dependency:
            if imported not in files:
                _fetch(target, files, file_by_filename=imported)
        files.setdefault(file.name, file)


def test_every_service_can_be_described(target: Target) -> None:
    """What a client such as grpcurl does: fetch the files and build the messages from them."""
    files: Files = {}
    for service in sorted(services(target)):
        _fetch(target, files, file_containing_symbol=service)
    pool = descriptor_pool.DescriptorPool()
    for file in files.values():
        pool.Add(file)

    theirs = pool.FindServiceByName("inference.GRPCInferenceService")
    own = ours.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert {method.name for method in theirs.methods} == {method.name for method in own.methods}
    for service in services(target):
        assert pool.FindServiceByName(service).methods


def test_unknown_symbols_are_an_error_in_band(target: Target) -> None:
    answer = asked(target, file_containing_symbol="inference.Nothing")

    assert answer.error_response.error_code == 5
    target.assert_well()
