"""The gateway's in-process server: what is not forwarded is answered here."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from reactant_core import logs
from reactant_core.kserve.logsettings import LogSettings
from reactant_core.packing.servicer import SchedulingServicer
from reactant_core.packing.steered import Steered
from reactant_core.rpc import (
    DEFAULT_MESSAGE_BYTES,
    HealthServicer,
    RpcServer,
    add_health,
    add_reflection,
    create_server,
)
from reactant_gateway.local.control import FleetControlServicer
from reactant_gateway.local.fanout import PATIENCE_SECONDS
from reactant_gateway.local.fleet import Fleet
from reactant_gateway.local.health import TableHealth
from reactant_gateway.local.inference import InferenceServicer
from reactant_gateway.local.regions import RegionBook
from reactant_gateway.router import Router
from reactant_policy.routing.table import RoutingTable
from reactant_proto import POOL, control_pb2_grpc, gateway_pb2_grpc, inference_pb2_grpc

# Nothing that is answered here takes tensors.
_REQUEST_BYTES: Final = 4 * 1024 * 1024
_STOP_GRACE_SECONDS: Final = 1.0
_PREFIX: Final = "reactant-gateway-"
_SOCKET: Final = "local.sock"
_YOUNG_SECONDS: Final = 60.0


@final
class LocalServer:
    """Serves all but the inference calls on a private Unix socket: KServe V2, control, health, reflection.

    Only this user can reach the socket: it lies in a folder of mode 0700.
    """

    def __init__(
        self,
        discovery: Fleet,
        router: Router,
        regions: RegionBook,
        *,
        steering: Steered | None = None,
        services: Sequence[Callable[[RpcServer], None]] = (),
        run_dir: Path | None = None,
        max_recv_msg_bytes: int = DEFAULT_MESSAGE_BYTES,
        max_send_msg_bytes: int = DEFAULT_MESSAGE_BYTES,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Construct on the event loop that serves.

        Args:
            discovery: the workers.
            router: the routing table in force.
            regions: shared-memory regions.
            steering: the scheduling, for GatewayControlService; None: it is not served.
            services: each adds one more service before the start; reflection lists them too.
            run_dir: the socket's folder is made here; None: where temporary files go.
            max_recv_msg_bytes: larger requests are refused with RESOURCE_EXHAUSTED.
            max_send_msg_bytes: larger responses become RESOURCE_EXHAUSTED.
            patience: seconds to wait for other workers once one has answered.
        """
        self._discovery = discovery
        self._run_dir = run_dir
        self._folder: Path | None = None
        self._draining = False
        self._servicer = HealthServicer()
        self._health = TableHealth(self._servicer)
        self._health.swapped(router.table)
        self._rpc = create_server(
            transport="grpcio",
            max_recv_msg_bytes=min(max_recv_msg_bytes, _REQUEST_BYTES),
            max_send_msg_bytes=max_send_msg_bytes,
        )
        inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
            InferenceServicer(
                fleet=discovery,
                router=router,
                regions=regions,
                log_settings=LogSettings(os.environ.get(logs.FORMAT_VARIABLE, "default")),
                ready=lambda: self.ready,
                patience=patience,
            ),
            self._rpc.server,
        )
        control_pb2_grpc.add_ControlServiceServicer_to_server(
            FleetControlServicer(discovery), self._rpc.server
        )
        if steering is not None:
            gateway_pb2_grpc.add_GatewayControlServiceServicer_to_server(
                SchedulingServicer(steering), self._rpc.server
            )
        add_health(self._rpc, self._servicer)
        for add in services:
            add(self._rpc)
        add_reflection(self._rpc, [POOL])

    @property
    def services(self) -> tuple[str, ...]:
        """Full names of the services that answer here."""
        return self._rpc.services

    @property
    def ready(self) -> bool:
        """A worker is ready and the gateway is not draining."""
        return not self._draining and bool(self._discovery.ready_handles())

    async def start(self) -> str:
        """Begins to answer; returns the socket's address, `unix:/path`.

        Raises BindError naming the path, OSError when the folder cannot be made.
        """
        parent = self._run_dir or Path(tempfile.gettempdir())
        _remove_dead_folders(parent)
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        path = self._folder / _SOCKET
        try:
            self._rpc.bind_unix(path)
        except OSError:
            self._remove_folder()
            raise
        await self._rpc.start()
        return f"unix:{path}"

    def health_from(self, table: RoutingTable) -> None:
        """To be called with every routing table put in force."""
        self._health.swapped(table)

    def drain(self) -> None:
        """Says "not ready" from here on, to ServerReady and to health; everything is still answered."""
        self._draining = True
        self._health.drain()

    async def wait_died(self) -> str:
        """Returns, with the reason, when the server has ended without having been stopped."""
        return await self._rpc.wait_died()

    async def stop(self) -> None:
        """Ends health watches and closes the socket."""
        self._servicer.shutdown()
        await self._rpc.stop(_STOP_GRACE_SECONDS)
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _remove_dead_folders(parent: Path) -> None:
    """Removes what killed gateways of this user left: folders whose socket nobody listens on."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            # One that is just being made is not listened on yet either.
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _YOUNG_SECONDS:
                continue
            with socket.socket(socket.AF_UNIX) as probe:
                probe.setblocking(False)
                try:
                    probe.connect(str(folder / _SOCKET))
                except ConnectionRefusedError:
                    shutil.rmtree(folder, ignore_errors=True)
