"""Wire contracts of ReactantServer: KServe V2 and control messages with typed stubs."""

from reactant_proto.pool import POOL

__all__ = ["POOL"]
