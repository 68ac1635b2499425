"""The only module that imports `pygrpc_native`, an HTTP/2 server in Rust behind grpc.aio's API."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, cast

import grpc.aio

from reactant_core.rpc.options import Options


def unavailable_because() -> str | None:
    """Why the native transport cannot be used here, or None when it can."""
    try:
        importlib.import_module("pygrpc_native.aio")
    except ImportError as error:
        return f"pygrpc_native cannot be imported ({error})"
    return None


def create_native_server(
    *, interceptors: Sequence[grpc.aio.ServerInterceptor], thread_pool: Executor | None, options: Options
) -> grpc.aio.Server:
    """A `pygrpc_native.aio` server.

    Raises:
        ImportError: see `unavailable_because`.
    """
    native: Any = importlib.import_module("pygrpc_native.aio")
    server = native.server(thread_pool, interceptors=tuple(interceptors), options=options)
    return cast("grpc.aio.Server", server)
