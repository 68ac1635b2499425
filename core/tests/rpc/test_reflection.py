"""Server reflection over a private pool and the default one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from reactant_core.rpc import HealthServicer, RpcServer, add_health, add_reflection
from reactant_core.rpc.reflection import CombinedPool
from reactant_core.testing import async_test

Serving = Callable[..., Any]


def private_pool() -> descriptor_pool.DescriptorPool:
    """Two files that the default pool does not know; one imports the other and extends its message."""
    pool = descriptor_pool.DescriptorPool()
    base = descriptor_pb2.FileDescriptorProto(name="test/base.proto", package="test", syntax="proto2")
    message = base.message_type.add(name="Base")
    message.extension_range.add(start=100, end=200)
    pool.Add(base)
    echo = descriptor_pb2.FileDescriptorProto(
        name="test/echo.proto", package="test", syntax="proto2", dependency=["test/base.proto"]
    )
    echo.extension.add(
        name="note",
        number=101,
        extendee=".test.Base",
        type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    service = echo.service.add(name="Echo")
    service.method.add(name="Say", input_type=".test.Base", output_type=".test.Base")
    pool.Add(echo)
    return pool


def add(server: RpcServer) -> None:
    add_health(server, HealthServicer())
    add_reflection(server, [private_pool()])


async def ask(served: Any, **question: Any) -> Any:
    call = reflection_pb2_grpc.ServerReflectionStub(served.channel).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(**question))
    await call.done_writing()
    return await call.read()


def files(answer: Any) -> list[str]:
    names = []
    for data in answer.file_descriptor_response.file_descriptor_proto:
        names.append(descriptor_pb2.FileDescriptorProto.FromString(data).name)
    return sorted(names)


@async_test
async def test_every_service_on_the_port_is_listed(transport: Any, serving: Serving) -> None:
    async with serving(transport, add=add) as served:
        answer = await ask(served, list_services="")
        assert [service.name for service in answer.list_services_response.service] == [
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "test.Echo",
        ]


@async_test
async def test_symbols_of_both_pools_with_what_they_import(transport: Any, serving: Serving) -> None:
    both = ["test/base.proto", "test/echo.proto"]
    async with serving(transport, add=add) as served:
        assert files(await ask(served, file_containing_symbol="test.Echo")) == both
        assert files(await ask(served, file_containing_symbol="test.Echo.Say")) == both
        assert files(await ask(served, file_by_filename="test/base.proto")) == ["test/base.proto"]
        health = await ask(served, file_containing_symbol="grpc.health.v1.Health")
        assert files(health) == ["grpc_health/v1/health.proto"]
        extension = {"containing_type": "test.Base", "extension_number": 101}
        assert files(await ask(served, file_containing_extension=extension)) == both
        numbers = await ask(served, all_extension_numbers_of_type="test.Base")
        assert list(numbers.all_extension_numbers_response.extension_number) == [101]


@async_test
async def test_what_no_pool_knows_is_not_found(transport: Any, serving: Serving) -> None:
    async with serving(transport, add=add) as served:
        for question in (
            {"file_containing_symbol": "no.Such"},
            {"file_by_filename": "no/such.proto"},
            {"file_containing_extension": {"containing_type": "test.Base", "extension_number": 150}},
            {"all_extension_numbers_of_type": "no.Such"},
        ):
            answer = await ask(served, **question)
            assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_the_first_pool_that_knows_answers() -> None:
    first, second = private_pool(), private_pool()
    pool = CombinedPool([first, second])
    assert pool.FindFileByName("test/echo.proto").pool is first
    with pytest.raises(KeyError):
        pool.FindFileByName("no/such.proto")
