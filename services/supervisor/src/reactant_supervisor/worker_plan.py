"""The workers of a node: where each listens, what it computes on, what its process is told. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from reactant_core.config import ConfigError, Effective, Fault, NodeConfig
from reactant_core.config.effective import DEFAULT
from reactant_supervisor.devices import VISIBLE_DEVICES, Devices
from reactant_supervisor.listeners import Listener
from reactant_supervisor.process_spec import ProcessSpec
from reactant_supervisor.settings import entry_setting, worker_setting, worker_variable

WORKER_MODULE = "reactant_worker"
LOOPBACK = "127.0.0.1"
MOST_THREADS = 16

_SOCKET_PATH_BYTES = 107
# Read by XLA's CPU client and by the BLAS libraries of hooks; XLA_FLAGS has no such setting that works.
_THREAD_VARIABLES = ("NPROC", "OMP_NUM_THREADS")


@final
@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker.

    Attributes:
        spec: its process.
        host: address its ports are bound on.
        grpc_port: gRPC.
        http_port: HTTP.
        unix_socket: gRPC for the gateway on this machine, None for TCP alone.
        device: its CUDA selector, None on the CPU.
        settings: what was decided for it, by dotted key of its configuration.
        listeners: its ports.
        lameduck_seconds: as it will have it.
        drain_timeout_seconds: likewise.
        notes: what a user set for it and is not followed.
    """

    spec: ProcessSpec
    host: str
    grpc_port: int
    http_port: int
    unix_socket: Path | None
    device: str | None
    settings: Mapping[str, Any]
    listeners: tuple[Listener, Listener]
    lameduck_seconds: float
    drain_timeout_seconds: float
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """What routing, metrics and logs call it."""
        return self.spec.name


def plan_workers(
    node: Effective[NodeConfig],
    devices: Devices,
    count: int,
    *,
    env: Mapping[str, str],
    python: str,
    cores: int,
    sockets: Path | None,
    public: bool,
) -> tuple[WorkerPlan, ...]:
    """The workers of a node.

    Args:
        node: its configuration.
        devices: what they compute on.
        count: how many there are.
        env: what each inherits.
        python: the interpreter that runs them.
        cores: processors they share.
        sockets: where they listen for the gateway in front of them; None without one.
        public: the only one has the node's public ports.

    Raises:
        ConfigError: entries of `workers:` ask for devices that there are not.
    """
    selectors = _selectors(node, devices, count)
    threads = node.value.worker_threads or max(1, min(cores // max(1, count), MOST_THREADS))
    return tuple(
        _plan(
            node,
            index,
            selectors[index],
            env=env,
            python=python,
            threads=threads,
            sockets=sockets,
            public=public,
        )
        for index in range(count)
    )


def _plan(
    node: Effective[NodeConfig],
    index: int,
    device: str | None,
    *,
    env: Mapping[str, str],
    python: str,
    threads: int,
    sockets: Path | None,
    public: bool,
) -> WorkerPlan:
    config = node.value
    name = config.workers[index].name if config.workers else f"worker{index}"
    listeners = _listeners(node, index, name, public=public, loopback=sockets is not None)
    grpc, http = listeners
    settings: dict[str, Any] = {"endpoints.port": grpc.port, "endpoints.metrics_port": http.port}
    unix_socket = None
    if sockets is not None:
        settings["endpoints.host"] = grpc.host
        unix_socket = _socket(sockets, name) if config.unix_sockets else None
        if unix_socket is not None:
            settings["endpoints.unix_socket"] = str(unix_socket)
    # Announcing a stop before refusing work helps only where something else can take the work: a gateway
    # on another machine.
    lameduck, source = worker_setting(node, index, "lameduck_seconds")
    if sockets is not None or (public and source == DEFAULT):
        lameduck = settings["lameduck_seconds"] = 0
    if worker_setting(node, index, "hook_threads")[1] == DEFAULT:
        settings["hook_threads"] = threads
    if device is not None:
        settings["runtime.device_ordinal"] = 0
    else:
        settings["runtime.backend"] = "cpu"
    return WorkerPlan(
        spec=ProcessSpec(
            name,
            (python, "-m", WORKER_MODULE),
            {
                **env,
                **_threads(node, env, threads),
                **({VISIBLE_DEVICES: device} if device is not None else {}),
                # A variable inherited from outside would win over the node file.
                **{worker_variable(key): str(value) for key, value in settings.items()},
                "INFERENCE_SERVER_NAME": name,
            },
        ),
        host=grpc.host,
        grpc_port=grpc.port,
        http_port=http.port,
        unix_socket=unix_socket,
        device=device,
        settings=settings,
        listeners=listeners,
        lameduck_seconds=lameduck,
        drain_timeout_seconds=worker_setting(node, index, "drain_timeout_seconds")[0],
        notes=_not_followed(env, listeners),
    )


def _listeners(
    node: Effective[NodeConfig], index: int, name: str, *, public: bool, loopback: bool
) -> tuple[Listener, Listener]:
    config = node.value
    host = LOOPBACK if loopback else str(worker_setting(node, index, "endpoints.host")[0])
    if public:
        return (
            Listener("gRPC", host, config.public_port, "REACTANT_PUBLIC_PORT"),
            Listener("HTTP", host, config.public_metrics_port, "REACTANT_PUBLIC_METRICS_PORT"),
        )
    entry = config.workers[index] if config.workers else None
    own_port = entry.port if entry is not None else None
    if own_port is None:
        own_port = entry_setting(config, index, "endpoints.port")
    own_http = entry_setting(config, index, "endpoints.metrics_port")
    return (
        Listener(
            f"{name} gRPC",
            host,
            _in_range("REACTANT_BASE_PORT", config.base_port + index) if own_port is None else own_port,
            "REACTANT_BASE_PORT" if own_port is None else f"workers[{index}].port",
        ),
        Listener(
            f"{name} HTTP",
            host,
            _in_range("REACTANT_METRICS_BASE_PORT", config.metrics_base_port + index)
            if own_http is None
            else own_http,
            "REACTANT_METRICS_BASE_PORT" if own_http is None else f"workers[{index}].endpoints.metrics_port",
        ),
    )


def _in_range(setting: str, port: int) -> int:
    if port > 65535:
        raise ConfigError([Fault(setting, f"{port} would be a port; the highest is 65535", setting)])
    return port


def _socket(folder: Path, name: str) -> Path | None:
    path = folder / f"{name}.sock"
    return path if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES else None


def _threads(node: Effective[NodeConfig], env: Mapping[str, str], threads: int) -> dict[str, str]:
    asked = node.value.worker_threads is not None
    return {name: str(threads) for name in _THREAD_VARIABLES if asked or not env.get(name)}


def _not_followed(env: Mapping[str, str], listeners: tuple[Listener, Listener]) -> tuple[str, ...]:
    variables = (worker_variable("endpoints.port"), worker_variable("endpoints.metrics_port"))
    return tuple(
        f"{variable}={env[variable]} is not followed: under a supervisor the port is "
        f"{listener.setting} ({listener.port})"
        for variable, listener in zip(variables, listeners, strict=True)
        if env.get(variable, "").strip() not in ("", str(listener.port))
    )


def _selectors(node: Effective[NodeConfig], devices: Devices, count: int) -> list[str | None]:
    if not node.value.workers:
        return [*devices.selectors] if devices.selectors else [None] * count
    chosen: list[str | None] = []
    faults = []
    for index, entry in enumerate(node.value.workers):
        on_cpu = worker_setting(node, index, "runtime.backend")[0] == "cpu" or (
            entry.gpu is None and not devices.selectors
        )
        selector = None if on_cpu else _chosen(entry.gpu, index, devices.selectors)
        if selector is None and not on_cpu:
            asked = index if entry.gpu is None else entry.gpu
            faults.append(
                Fault(
                    f"workers[{index}]" + ("" if entry.gpu is None else ".gpu"),
                    f"device {asked} is asked for, but there are {len(devices.selectors)} ({devices.source})",
                    node.sources.get(f"workers[{index}].{'name' if entry.gpu is None else 'gpu'}", "workers"),
                )
            )
        chosen.append(selector)
    if faults:
        raise ConfigError(faults)
    return chosen


def _chosen(gpu: int | str | None, index: int, found: tuple[str, ...]) -> str | None:
    """The selector an entry means: an identifier, a listed ordinal, or a place among what was found."""
    if isinstance(gpu, str) or str(gpu) in found:
        return str(gpu)
    place = index if gpu is None else gpu
    return found[place] if place < len(found) else None
