"""Server reflection over several descriptor pools.

Our messages live in a private pool, so that hooks may import other stubs of the same protocol; the
standard servicer knows one pool. A small object that asks each pool in turn stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha._async import ReflectionServicer

from reactant_core.rpc.server import RpcServer

T = TypeVar("T")

SERVICE_NAME: str = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].full_name


@final
class CombinedPool:
    """The look-ups reflection makes, answered by the first pool that knows; KeyError when none does."""

    __slots__ = ("_pools",)

    def __init__(self, pools: Sequence[descriptor_pool.DescriptorPool]) -> None:
        self._pools = tuple(pools)

    def FindFileByName(self, name: str) -> Any:  # noqa: N802
        return self._first(lambda pool: pool.FindFileByName(name))

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802
        try:
            return self._first(lambda pool: pool.FindFileContainingSymbol(symbol))
        except KeyError:
            # protobuf's pools do not count methods as symbols; the reflection protocol does.
            return self._first(lambda pool: pool.FindMethodByName(symbol)).containing_service.file

    def FindMessageTypeByName(self, name: str) -> Any:  # noqa: N802
        return self._first(lambda pool: pool.FindMessageTypeByName(name))

    def FindExtensionByNumber(self, message: Any, number: int) -> Any:  # noqa: N802
        return self._first(lambda pool: pool.FindExtensionByNumber(message, number))

    def FindAllExtensions(self, message: Any) -> list[Any]:  # noqa: N802
        return [
            found
            for pool in self._pools
            if pool is message.file.pool
            for found in pool.FindAllExtensions(message)
        ]

    def _first(self, find: Callable[[Any], T]) -> T:
        for pool in self._pools:
            try:
                return find(pool)
            except KeyError:
                continue
        raise KeyError


def add_reflection(server: RpcServer, pools: Sequence[descriptor_pool.DescriptorPool]) -> None:
    """Serves reflection on `server`; call when every other service has been added, before start.

    Lists the services added so far and reflection itself. `pools` are asked in order for their
    descriptors, the default pool last.
    """
    pool = CombinedPool([*pools, descriptor_pool.Default()])
    servicer = ReflectionServicer([*server.services, SERVICE_NAME], pool=pool)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server.server)
