"""What runs on this machine: environment and configuration in, processes out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from reactant_core.config import ConfigError, Effective, Fault, NodeConfig
from reactant_core.config.effective import DEFAULT
from reactant_core.logs import FORMAT_VARIABLE
from reactant_supervisor.budget import budget_note

WORKER_MODULE = "reactant_worker"

_GRPC_PORT = "INFERENCE_SERVER_ENDPOINTS_PORT"
_HTTP_PORT = "INFERENCE_SERVER_ENDPOINTS_METRICS_PORT"
_ONE_WORKER = "this version starts one worker on a machine; several behind a gateway come later"


@final
@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A process to start: its name in the log, its command line, its whole environment."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]


@final
@dataclass(frozen=True, slots=True)
class NodePlan:
    """What to start and where it can be reached.

    Attributes:
        worker: the one process of this version.
        host: address the public ports are bound on.
        grpc_port: public gRPC port.
        http_port: public HTTP port.
        notes: what a user set and is not followed or will not work as set, a sentence each.
    """

    worker: ProcessSpec
    host: str
    grpc_port: int
    http_port: int
    notes: tuple[str, ...]


def make_plan(
    node: Effective[NodeConfig], environ: Mapping[str, str], *, python: str, terminal: bool
) -> NodePlan:
    """The plan for a node.

    Args:
        node: its configuration.
        environ: what its processes inherit.
        python: the interpreter that runs them.
        terminal: whether people read the log on a terminal, so that children write as for one.

    Raises:
        ConfigError: everything asked for that this version does not start.
    """
    config = node.value
    faults = _not_offered(node)
    if faults:
        raise ConfigError(faults)
    name = config.workers[0].name if config.workers else "worker0"
    host = config.global_.endpoints.host
    ports = {_GRPC_PORT: config.public_port, _HTTP_PORT: config.public_metrics_port}
    env = {
        **environ,
        **_log_environment(environ, terminal=terminal),
        **_device_environment(config),
        **_lameduck_environment(node),
        **{variable: str(port) for variable, port in ports.items()},
        "INFERENCE_SERVER_NAME": name,
    }
    notes = [
        f"{variable}={environ[variable]} is not followed: under a supervisor the port is {setting} ({port})"
        for (variable, port), setting in zip(
            ports.items(), ("REACTANT_PUBLIC_PORT", "REACTANT_PUBLIC_METRICS_PORT"), strict=True
        )
        if environ.get(variable, str(port)).strip() not in ("", str(port))
    ]
    if (note := _budget_note(node)) is not None:
        notes.append(note)
    worker = ProcessSpec(name, (python, "-m", WORKER_MODULE), env)
    return NodePlan(worker, host, config.public_port, config.public_metrics_port, tuple(notes))


def _not_offered(node: Effective[NodeConfig]) -> list[Fault]:
    config = node.value
    asked = (
        (
            "role",
            config.role != "all",
            f"{config.role!r} is a role, but this version only starts 'all'; the others come later",
        ),
        ("workers", len(config.workers) > 1, f"{len(config.workers)} workers; {_ONE_WORKER}"),
        ("cpu_workers", config.cpu_workers > 1, f"{config.cpu_workers}; {_ONE_WORKER}"),
        ("gpus", _device_count(config) > 1, f"{_device_count(config)} devices; {_ONE_WORKER}"),
        (
            "public_metrics_port",
            config.public_port == config.public_metrics_port,
            f"{config.public_metrics_port} is also public_port; gRPC and HTTP need a port each",
        ),
    )
    return [Fault(key, problem, node.sources.get(key, DEFAULT)) for key, applies, problem in asked if applies]


def _device_count(config: NodeConfig) -> int:
    """Devices asked for; 1 when it is left to what there is."""
    if config.gpus is None:
        return 1
    return config.gpus if isinstance(config.gpus, int) else len(config.gpus)


def _device_environment(config: NodeConfig) -> dict[str, str]:
    if config.gpus == 0 and config.global_.runtime.backend == "auto":
        return {"INFERENCE_SERVER_RUNTIME_BACKEND": "cpu"}
    if isinstance(config.gpus, tuple):
        return {"CUDA_VISIBLE_DEVICES": ",".join(config.gpus)}
    return {}


def _worker_setting(node: Effective[NodeConfig], key: str) -> tuple[float, str]:
    """Value and source of a number as the worker will have it: variable, its entry, `global:`."""
    source = node.sources.get(f"global.{key}", DEFAULT)
    entry = node.value.workers[0] if node.value.workers else None
    if entry is None or key not in entry.model_fields_set or source == f"INFERENCE_SERVER_{key.upper()}":
        return getattr(node.value.global_, key), source
    return getattr(entry, key), node.sources.get(f"workers[0].{key}", "workers[0]")


def _lameduck_environment(node: Effective[NodeConfig]) -> dict[str, str]:
    # Announcing a stop before refusing work helps only where something else can take the work.
    if _worker_setting(node, "lameduck_seconds")[1] == DEFAULT:
        return {"INFERENCE_SERVER_LAMEDUCK_SECONDS": "0"}
    return {}


def _budget_note(node: Effective[NodeConfig]) -> str | None:
    lameduck, source = _worker_setting(node, "lameduck_seconds")
    drain_timeout, _ = _worker_setting(node, "drain_timeout_seconds")
    return budget_note(0.0 if source == DEFAULT else lameduck, drain_timeout)


def _log_environment(environ: Mapping[str, str], *, terminal: bool) -> dict[str, str]:
    """A child writes to a pipe; these tell it what is at the other end."""
    env = {"PYTHONUNBUFFERED": "1"}
    if terminal:
        env[FORMAT_VARIABLE] = environ.get(FORMAT_VARIABLE) or "console"
        if not environ.get("NO_COLOR"):
            env["FORCE_COLOR"] = "1"
    return env
