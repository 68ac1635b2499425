"""What runs on this machine: environment and configuration in, processes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from reactant_core.config import ConfigError, Effective, Fault, NodeConfig
from reactant_core.config.effective import DEFAULT
from reactant_core.config.gateway import GatewayConfig
from reactant_supervisor.budget import budget_note, gateway_budget_note
from reactant_supervisor.devices import Devices
from reactant_supervisor.gateway_plan import GatewayPlan, plan_gateway
from reactant_supervisor.inherited import inherited
from reactant_supervisor.listeners import Listener, repeated_ports
from reactant_supervisor.node_file import node_file_text
from reactant_supervisor.worker_plan import WorkerPlan, plan_workers

NODE_FILE_NAME = "node.yaml"


@final
@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a plan depends on beside the configuration.

    Attributes:
        environ: what processes inherit.
        python: the interpreter that runs them.
        terminal: whether people read the log on a terminal, so that children write as for one.
        cores: processors to share out.
        run_dir: where sockets and the node file are.
    """

    environ: Mapping[str, str]
    python: str
    terminal: bool
    cores: int
    run_dir: Path


@final
@dataclass(frozen=True, slots=True)
class NodePlan:
    """What to start and where it can be reached.

    Attributes:
        role: `all`, `workers` or `gateway`.
        workers: in their order.
        gateway: None where none is needed.
        devices: what was found.
        node_file: text of the node file that the workers read.
        listeners: every port that something of this node will listen on.
        notes: what a user set and is not followed or will not work as set, a sentence each.
    """

    role: str
    workers: tuple[WorkerPlan, ...]
    gateway: GatewayPlan | None
    devices: Devices
    node_file: str
    listeners: tuple[Listener, ...]
    notes: tuple[str, ...]

    @property
    def shape(self) -> object:
        """What cannot change while the node runs: its processes, their ports and their devices."""
        return [(worker.name, worker.device) for worker in self.workers], self.listeners


def make_plan(
    node: Effective[NodeConfig],
    devices: Devices,
    gateway_config: Callable[[], Effective[GatewayConfig]],
    around: Surroundings,
) -> NodePlan:
    """The plan for a node.

    Args:
        node: its configuration.
        devices: what its workers compute on.
        gateway_config: loads the gateway's configuration, where there is to be one.
        around: everything else.

    Raises:
        ConfigError: everything that cannot be started as it is asked for.
    """
    role = node.value.role
    if role == "registry":
        problem = "'registry' is a role of a later version; accepted here are all, workers and gateway"
        raise ConfigError([Fault("role", problem, node.sources.get("role", DEFAULT))])
    count = 0 if role == "gateway" else worker_count(node.value, devices)
    with_gateway = role == "gateway" or (role == "all" and count > 1)
    env = inherited(around.environ, terminal=around.terminal)
    env["REACTANT_NODE_FILE"] = str(around.run_dir / NODE_FILE_NAME)
    workers = plan_workers(
        node,
        devices,
        count,
        env=env,
        python=around.python,
        cores=around.cores,
        sockets=around.run_dir if with_gateway else None,
        public=role == "all" and not with_gateway,
    )
    gateway = None
    if with_gateway:
        if role == "gateway":
            del env["REACTANT_NODE_FILE"]
        gateway = plan_gateway(node, gateway_config(), workers, env=env, python=around.python)
    listeners = (
        *(gateway.listeners if gateway is not None else ()),
        *(listener for worker in workers for listener in worker.listeners),
    )
    if faults := repeated_ports(listeners):
        raise ConfigError(faults)
    return NodePlan(
        role=role,
        workers=workers,
        gateway=gateway,
        devices=devices,
        node_file=node_file_text(node, devices, workers),
        listeners=listeners,
        notes=(*devices.notes, *_notes(workers, gateway)),
    )


def worker_count(config: NodeConfig, devices: Devices) -> int:
    """How many workers there are to be: those listed, one for each device, or those of a CPU node."""
    return len(config.workers) or len(devices.selectors) or config.cpu_workers


def _notes(workers: tuple[WorkerPlan, ...], gateway: GatewayPlan | None) -> list[str]:
    notes = [note for worker in workers for note in worker.notes]
    if gateway is None:
        times = [budget_note(worker.lameduck_seconds, worker.drain_timeout_seconds) for worker in workers]
    else:
        times = [
            gateway_budget_note(
                gateway.lameduck_seconds, gateway.drain_timeout_seconds, workers=bool(workers)
            )
        ]
        notes += gateway.notes
    # The same times of several workers are one note.
    return list(dict.fromkeys([*notes, *(note for note in times if note is not None)]))
