"""The only module that imports `pygrpc_native`, an HTTP/2 server in Rust behind grpc.aio's API.

Version 0.5.0 closes its connections 100 ms after the handlers have returned, which cuts responses still on
their way, and refuses calls during the stop without saying that they were not started. Both are put
right here, by a front that looks at calls begun and ended and at the kernel's send queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, cast, final

import grpc
import grpc.aio

from reactant_core.errors import NOT_STARTED_KEY
from reactant_core.logs import get_logger
from reactant_core.net import unacknowledged_bytes
from reactant_core.rpc.direct import DirectCall, Taker
from reactant_core.rpc.options import Options

_log = get_logger(__name__)
_DRAIN_POLL_SECONDS = 0.01
# What has been handed to HTTP/2 reaches the kernel a moment later: one empty look is not proof.
_DRAIN_LOOKS = 3
_STOPPING = "Server is shutting down"


def unavailable_because() -> str | None:
    """Why the native transport cannot be used here, or None when it can."""
    try:
        importlib.import_module("pygrpc_native.aio")
    except ImportError as error:
        return f"pygrpc_native cannot be imported ({error})"
    return None


@final
class NativeBackend:
    """A `pygrpc_native.aio` server for each address, with the same handlers: one has one port.

    Raises:
        ImportError: see `unavailable_because`.
    """

    name = "native"

    def __init__(
        self,
        *,
        interceptors: Sequence[grpc.aio.ServerInterceptor],
        thread_pool: Executor | None,
        options: Options,
    ) -> None:
        native: Any = importlib.import_module("pygrpc_native.aio")
        # One I/O thread a port, not the two of its default: a second one mostly waits for the interpreter.
        self._make = partial(
            native.Server, thread_pool, interceptors=tuple(interceptors), options=options, io_threads=1
        )
        self._handlers = _Handlers()
        self._servers: list[Any] = []
        self._takers: dict[str, Taker] = {}
        self._bursts: list[_Bursts] = []
        # Never done: no way is known in which this server ends by itself.
        self.died: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def server(self) -> grpc.aio.Server:
        return cast("grpc.aio.Server", self._handlers)

    def bind(self, address: str) -> int:
        return self._bind(address, unacknowledged_bytes)

    def bind_unix(self, path: Path) -> None:
        # What the kernel has taken is in the client's own queue already.
        self._bind(f"unix:{path}", lambda _: 0)

    def _bind(self, address: str, outstanding: Callable[[int], int | None]) -> int:
        server = self._make()
        # Counts per method, kept in Rust: what the drain looks at.
        server._front_args["metrics"] = True
        port: int = server.add_insecure_port(address)
        server._front = _DrainingFront(server._front, partial(outstanding, port))
        self._servers.append(server)
        return port

    def offer(self, method: str, taker: Taker) -> None:
        self._takers[method] = taker

    async def start(self) -> None:
        if not self._servers:
            raise RuntimeError("bind an address before start()")
        remove_dead_fallbacks(Path(tempfile.gettempdir()))
        for server in self._servers:
            self._handlers.add_to(server)
            await server.start()
            if self._takers:
                self._bursts.append(_Bursts(server, self._takers))

    async def stop(self, grace_seconds: float) -> None:
        for server in self._servers:
            server._front.deadline = time.monotonic() + grace_seconds
        await asyncio.gather(*(server.stop(grace_seconds) for server in self._servers))
        for bursts in self._bursts:
            bursts.abandon()


@final
class _Bursts:
    """Stands before a server's events, and offers those of some methods to their takers first."""

    def __init__(self, server: Any, takers: Mapping[str, Taker]) -> None:
        native: Any = importlib.import_module("pygrpc_native")
        self._call_kind: int = native.EVENT_CALL
        self._server = server
        self._ordinary = server._on_events
        self._limit: int | None = server._receive_limit
        self._takers = {
            index: takers[method] for index, (method, _) in enumerate(server._table) if method in takers
        }
        self._taken: dict[int, DirectCall] = {}
        server._on_events = self._on_events

    def abandon(self) -> None:
        """Tells of the calls that are still open that nobody waits for them any more."""
        for call in list(self._taken.values()):
            call.abandon()

    def _on_events(self, events: Sequence[tuple[Any, ...]]) -> None:
        front, taken, takers = self._server._front, self._taken, self._takers
        offered: dict[int, list[DirectCall]] = {}
        # What comes after the stop, or is too large, is refused in the ordinary way.
        limit = -1 if self._server._stopping else self._limit
        for kind, call_id, method, payload, _, details in events:
            if kind == self._call_kind and method in takers and (limit is None or len(payload) <= limit):
                offered.setdefault(method, []).append(DirectCall(front, taken, call_id, payload, details))
        for method, calls in offered.items():
            try:
                takers[method](calls)
            except Exception:
                # What it did not take goes on to the servicer.
                _log.exception("calls could not be taken", calls=len(calls))
        rest = []
        for event in events:
            call = taken.get(event[1])
            if call is None:
                rest.append(event)
            elif event[0] != self._call_kind:
                call.abandon()
        if rest:
            self._ordinary(rest)


@final
class _Handlers:
    """Stands in for a server that handlers are added to, and adds them to as many as there are."""

    def __init__(self) -> None:
        self._additions: list[Callable[[Any], None]] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self._additions.append(lambda server: server.add_generic_rpc_handlers(handlers))

    def add_registered_method_handlers(self, service_name: str, handlers: Mapping[str, Any]) -> None:
        self._additions.append(
            lambda server: server.add_registered_method_handlers(service_name, dict(handlers))
        )

    def add_to(self, server: Any) -> None:
        for add in self._additions:
            add(server)


def remove_dead_fallbacks(folder: Path) -> None:
    """Removes what killed servers left: a folder each, with the socket of their second server.

    Only our own folders, and only those whose socket nobody listens on.
    """
    for left in folder.glob("pygrpc-native-*"):
        with contextlib.suppress(OSError):
            if left.lstat().st_uid != os.geteuid() or not stat.S_ISDIR(left.lstat().st_mode):
                continue
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(left / "fallback.sock"))
                except ConnectionRefusedError:
                    shutil.rmtree(left, ignore_errors=True)


@final
class _DrainingFront:
    """A `NativeGrpcFront` whose close waits, until `deadline`, for answers to be with the clients.

    `outstanding` tells how many bytes of them are still in the kernel.
    """

    def __init__(self, front: Any, outstanding: Callable[[], int | None]) -> None:
        self._front = front
        self._outstanding = outstanding
        self.deadline = 0.0
        # The calls made for every request are the front's own bound methods.
        self.recv_batch_details = front.recv_batch_details
        self.respond = front.respond
        self.stream_send = front.stream_send
        self.stream_try_send = front.stream_try_send

    def __getattr__(self, name: str) -> Any:
        return getattr(self._front, name)

    def fail(
        self,
        call_id: int,
        code: int,
        message: str,
        trailing_metadata: Sequence[tuple[str, str | bytes]] | None = None,
    ) -> bool:
        if message == _STOPPING and code == grpc.StatusCode.UNAVAILABLE.value[0]:
            trailing_metadata = [*(trailing_metadata or ()), (NOT_STARTED_KEY, "1")]
        failed: bool = self._front.fail(call_id, code, message, trailing_metadata=trailing_metadata)
        return failed

    def close(self) -> None:
        # Runs on an executor thread of the server's stop, so waiting here blocks no event loop.
        looks = 0
        while looks < _DRAIN_LOOKS and time.monotonic() < self.deadline:
            looks = looks + 1 if self._drained() else 0
            time.sleep(_DRAIN_POLL_SECONDS)
        self._front.close()

    def _drained(self) -> bool:
        methods = (self._front.metrics() or {}).get("methods", {}).values()
        begun = sum(method["started"] for method in methods)
        ended = sum(status["count"] for method in methods for status in method["status"].values())
        # Ended means handed over to HTTP/2 within the client's window; the kernel knows the rest.
        return bool(begun == ended) and not self._outstanding()
