"""The gateway of a node: where it listens, what its process is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from reactant_core.config import Effective, NodeConfig
from reactant_core.config.effective import DEFAULT
from reactant_core.config.gateway import (
    GATEWAY_PREFIX,
    HOLD_FD_VARIABLE,
    GatewayConfig,
    find_gateway_file,
)
from reactant_core.config.gateway_lists import GATEWAY_LISTS
from reactant_core.net import format_address
from reactant_supervisor.listeners import Listener
from reactant_supervisor.process_spec import ProcessSpec
from reactant_supervisor.worker_plan import WorkerPlan

GATEWAY_MODULE = "reactant_gateway"
GATEWAY_NAME = "gateway"

# Key of the gateway's configuration, key of the node's: followed where the gateway's own is not set.
_MIRRORED = {
    "grpc.max_recv_msg_bytes": "global.grpc.max_recv_msg_bytes",
    "grpc.max_send_msg_bytes": "global.grpc.max_send_msg_bytes",
    "logging.level": "global.log_level",
    "lameduck_seconds": "global.lameduck_seconds",
    "drain_timeout_seconds": "global.drain_timeout_seconds",
}


@final
@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """The gateway.

    Attributes:
        spec: its process.
        host: address its ports are bound on.
        grpc_port: public gRPC port.
        http_port: public HTTP port.
        listeners: both ports.
        lameduck_seconds: as it will have it.
        drain_timeout_seconds: likewise.
        notes: what a user set for it and is not followed.
    """

    spec: ProcessSpec
    host: str
    grpc_port: int
    http_port: int
    listeners: tuple[Listener, Listener]
    lameduck_seconds: float
    drain_timeout_seconds: float
    notes: tuple[str, ...]


def plan_gateway(
    node: Effective[NodeConfig],
    gateway: Effective[GatewayConfig],
    workers: Sequence[WorkerPlan],
    *,
    env: Mapping[str, str],
    python: str,
) -> GatewayPlan:
    """The gateway in front of `workers`; without workers, of a machine that only has a gateway.

    Where both configurations name a port, the node's counts.
    """
    listeners = _listeners(node, gateway)
    grpc, http = listeners
    settings: dict[str, Any] = {
        "listen.host": grpc.host,
        "listen.port": grpc.port,
        "listen.metrics_port": http.port,
    }
    if workers:
        settings |= _mirrored(node, gateway)
    variables = {_variable(key): str(value) for key, value in settings.items()}
    if workers:
        variables |= _lists(workers, env)
    return GatewayPlan(
        spec=ProcessSpec(
            GATEWAY_NAME,
            (python, "-m", GATEWAY_MODULE),
            {**env, **variables},
            # Without workers there is nobody to wait for.
            hold_variable=HOLD_FD_VARIABLE if workers else None,
        ),
        host=grpc.host,
        grpc_port=grpc.port,
        http_port=http.port,
        listeners=listeners,
        lameduck_seconds=float(settings.get("lameduck_seconds", gateway.value.lameduck_seconds)),
        drain_timeout_seconds=float(
            settings.get("drain_timeout_seconds", gateway.value.drain_timeout_seconds)
        ),
        notes=(*gateway.notes, *_no_endpoints(gateway, workers, env)),
    )


def _listeners(node: Effective[NodeConfig], gateway: Effective[GatewayConfig]) -> tuple[Listener, Listener]:
    listen, config = gateway.value.listen, node.value
    host = config.global_.endpoints.host if _unset(gateway, "listen.host") else listen.host
    follow = {
        "public_port": ("listen.port", listen.port),
        "public_metrics_port": ("listen.metrics_port", listen.metrics_port),
    }
    ports = {
        key: port if _unset(node, key) and not _unset(gateway, other) else getattr(config, key)
        for key, (other, port) in follow.items()
    }
    return (
        Listener("gRPC", host, ports["public_port"], "REACTANT_PUBLIC_PORT"),
        Listener("HTTP", host, ports["public_metrics_port"], "REACTANT_PUBLIC_METRICS_PORT"),
    )


def _mirrored(node: Effective[NodeConfig], gateway: Effective[GatewayConfig]) -> dict[str, Any]:
    values = {
        key: _at(node.value.global_, own.removeprefix("global."))
        for key, own in _MIRRORED.items()
        if _unset(gateway, key) and not _unset(node, own)
    }
    if _unset(gateway, "lameduck_seconds"):
        # On its own a node has nothing that could take the work instead.
        values.setdefault("lameduck_seconds", 0)
    return values


def _lists(workers: Sequence[WorkerPlan], env: Mapping[str, str]) -> dict[str, str]:
    """The lists of endpoints, unless a gateway file or the user gives them."""
    if find_gateway_file(env) is not None or env.get(GATEWAY_LISTS["endpoints"], "").strip():
        return {}
    lists = {
        "endpoints": [
            f"unix:{worker.unix_socket}"
            if worker.unix_socket is not None
            else format_address(worker.host, worker.grpc_port)
            for worker in workers
        ],
        "metrics_endpoints": [format_address(worker.host, worker.http_port) for worker in workers],
        "worker_names": [worker.name for worker in workers],
    }
    return {GATEWAY_LISTS[key]: ",".join(values) for key, values in lists.items()}


def _no_endpoints(
    gateway: Effective[GatewayConfig], workers: Sequence[WorkerPlan], env: Mapping[str, str]
) -> list[str]:
    file = find_gateway_file(env)
    if file is None or not workers or gateway.value.endpoints or gateway.value.registry is not None:
        return []
    return [f"{file} owns the list of endpoints and lists none: the gateway will reach no worker"]


def _variable(key: str) -> str:
    return GATEWAY_PREFIX + key.replace(".", "_").upper()


def _unset(effective: Effective[Any], key: str) -> bool:
    return effective.sources.get(key, DEFAULT) == DEFAULT


def _at(value: Any, key: str) -> Any:
    for part in key.split("."):
        value = getattr(value, part)
    return value
