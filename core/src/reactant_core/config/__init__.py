"""Configuration of a node, of a worker and of a gateway: file, environment, defaults.

Every fault of file and environment is reported at once; every effective value knows its source.
"""

from __future__ import annotations

from reactant_core.config.effective import Effective
from reactant_core.config.faults import ConfigError, Fault
from reactant_core.config.gateway import (
    GATEWAY_VARIABLES,
    GatewayConfig,
    default_gateway_yaml,
    find_gateway_file,
    load_gateway_config,
)
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
    "GATEWAY_VARIABLES",
    "NODE_VARIABLES",
    "WORKER_VARIABLES",
    "ConfigError",
    "Effective",
    "EndpointsConfig",
    "Fault",
    "GatewayConfig",
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
    "default_gateway_yaml",
    "default_node_yaml",
    "find_gateway_file",
    "load_gateway_config",
    "load_node_config",
    "load_worker_config",
    "parse_gpus",
]
