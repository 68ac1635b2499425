"""Configuration of a node and of a worker: node file, environment, defaults.

Every fault of file and environment is reported at once; every effective value knows its source.
"""

from __future__ import annotations

from reactant_core.config.effective import Effective
from reactant_core.config.faults import ConfigError, Fault
from reactant_core.config.load import (
    NODE_VARIABLES,
    WORKER_VARIABLES,
    default_node_yaml,
    load_node_config,
    load_worker_config,
)
from reactant_core.config.node import NodeConfig, SupervisorConfig, WorkerEntry, parse_gpus
from reactant_core.config.sections import (
    EndpointsConfig,
    GrpcConfig,
    ModelSchedulingConfig,
    RuntimeConfig,
    SchedulerConfig,
    TlsConfig,
)
from reactant_core.config.worker import SharedSettings, WorkerConfig

__all__ = [
    "NODE_VARIABLES",
    "WORKER_VARIABLES",
    "ConfigError",
    "Effective",
    "EndpointsConfig",
    "Fault",
    "GrpcConfig",
    "ModelSchedulingConfig",
    "NodeConfig",
    "RuntimeConfig",
    "SchedulerConfig",
    "SharedSettings",
    "SupervisorConfig",
    "TlsConfig",
    "WorkerConfig",
    "WorkerEntry",
    "default_node_yaml",
    "load_node_config",
    "load_worker_config",
    "parse_gpus",
]
