"""The gateway's configuration: its file, `REACTANT_GATEWAY_*` variables, defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, final

from reactant_core.config.accepted import without_empty
from reactant_core.config.addresses import Address, HostPort
from reactant_core.config.document import Document, parse_document, read_document
from reactant_core.config.effective import DEFAULT, Effective
from reactant_core.config.environment import Variable, read_variables, unknown_variable, variables
from reactant_core.config.faults import ConfigError, Fault
from reactant_core.config.gateway_lists import GATEWAY_LISTS, list_faults
from reactant_core.config.gateway_sections import (
    ListenConfig,
    LoggingConfig,
    SchedulingConfig,
    WorkerClientConfig,
)
from reactant_core.config.layers import checked, flatten, put, validated
from reactant_core.config.sections import GrpcConfig, Seconds, Section, TlsConfig
from reactant_core.config.worker import Name

GATEWAY_PREFIX = "REACTANT_GATEWAY_"
GATEWAY_FILE_VARIABLE = "REACTANT_GATEWAY_FILE"
GATEWAY_FILE = Path("/etc/reactantserver/gateway.yml")
GATEWAY_FILE_RESOURCE = "gateway.default.yaml"
LISTEN_FDS_VARIABLE = "REACTANT_GATEWAY_LISTEN_FDS"
"""Listening sockets handed down by the supervisor, such as `grpc=7,http=8`."""
HOLD_FD_VARIABLE = "REACTANT_GATEWAY_HOLD_FD"


@final
class GatewayConfig(Section):
    """What one gateway process runs with.

    Attributes:
        endpoints: gRPC of each worker.
        metrics_endpoints: HTTP of each worker, in the same order; empty merges no pages.
        worker_names: what metrics and logs call each worker, in the same order; empty is `worker0`, ….
        registry: `host:port` of the registry that knows the workers; None is the list above.
        lameduck_seconds: after a stop was asked for, how long requests are still admitted.
        drain_timeout_seconds: how long accepted requests may take after that.
        startup_wait_seconds: how long to wait at start for all workers to have compiled (`lpt_packing`).
    """

    listen: ListenConfig = ListenConfig()
    tls: TlsConfig | None = None
    grpc: GrpcConfig = GrpcConfig()
    worker_client: WorkerClientConfig = WorkerClientConfig()
    logging: LoggingConfig = LoggingConfig()
    scheduling: SchedulingConfig = SchedulingConfig()
    endpoints: tuple[Address, ...] = ()
    metrics_endpoints: tuple[HostPort, ...] = ()
    worker_names: tuple[Name, ...] = ()
    registry: HostPort | None = None
    lameduck_seconds: Seconds = 2.0
    drain_timeout_seconds: Seconds = 20.0
    startup_wait_seconds: Seconds = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each endpoint, given or made up."""
        return self.worker_names or tuple(f"worker{index}" for index in range(len(self.endpoints)))


GATEWAY_VARIABLES = variables(GatewayConfig, GATEWAY_PREFIX, separator=",", renamed=GATEWAY_LISTS)
"""Every `REACTANT_GATEWAY_*` variable that sets a value, by name."""

# How processes hand things to each other, not configuration.
_PLUMBING = (GATEWAY_FILE_VARIABLE, LISTEN_FDS_VARIABLE, HOLD_FD_VARIABLE)


def default_gateway_yaml() -> str:
    """The built-in gateway file: every key with its default and what it means."""
    return resources.files("reactant_core.config").joinpath(GATEWAY_FILE_RESOURCE).read_text(encoding="utf-8")


def find_gateway_file(environ: Mapping[str, str], *, default_file: Path = GATEWAY_FILE) -> Path | None:
    """The gateway file in force: the one `REACTANT_GATEWAY_FILE` names, else `default_file` if there is one.

    Where there is one, it owns the list of endpoints.
    """
    named = environ.get(GATEWAY_FILE_VARIABLE, "").strip()
    if named:
        return Path(named)
    try:
        default_file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        # There, and closed to us: reading it says why.
        pass
    return default_file


def load_gateway_config(
    environ: Mapping[str, str], *, gateway_file: Path | None = None, default_file: Path = GATEWAY_FILE
) -> Effective[GatewayConfig]:
    """The configuration of a gateway.

    `gateway_file`, else the file of `find_gateway_file`, else the built-in defaults; over it the
    `REACTANT_GATEWAY_*` variables. Those of the endpoint lists are not followed, which is noted, where there
    is a file: it owns the lists even if it leaves them empty.

    Raises:
        ConfigError: everything wrong with file and environment.
    """
    file, document = _document(environ, gateway_file, default_file)
    known = GATEWAY_VARIABLES
    if file is not None:
        known = {name: known[name] for name in known if name not in GATEWAY_LISTS.values()}
    values, value_faults = read_variables(environ, known)
    config, faults = checked(GatewayConfig, document)
    if file is None:
        faults += list_faults(_lists(values, value_faults), None)
    elif config is not None:
        faults += list_faults({key: getattr(config, key) for key in GATEWAY_LISTS}, document)
    faults += [*value_faults, *_unknown(environ)]
    if faults:
        raise ConfigError(faults)
    layer = flatten(document.tree, document)
    for variable, value in values.items():
        put(layer, variable.path, (value, variable.name))
    effective = validated(GatewayConfig, layer)
    _check_ports(effective)
    return effective if file is None else replace(effective, notes=_notes(environ, file, effective.value))


def _document(
    environ: Mapping[str, str], gateway_file: Path | None, default_file: Path
) -> tuple[Path | None, Document]:
    file = gateway_file or find_gateway_file(environ, default_file=default_file)
    if file is None:
        return None, Document(parse_document(default_gateway_yaml(), DEFAULT).tree, DEFAULT)
    named = gateway_file is None and environ.get(GATEWAY_FILE_VARIABLE, "").strip()
    document = read_document(file, GATEWAY_FILE_VARIABLE if named else "gateway file")
    return file, replace(document, tree=without_empty(document.tree, GatewayConfig))


def _lists(values: Mapping[Variable, Any], faults: Sequence[Fault]) -> dict[str, tuple[str, ...]]:
    """The lists that the environment gives, without those that could not be read."""
    given = {variable.name: value for variable, value in values.items()}
    faulty = {fault.key for fault in faults}
    return {key: given.get(name, ()) for key, name in GATEWAY_LISTS.items() if name not in faulty}


def _notes(environ: Mapping[str, str], file: Path, config: GatewayConfig) -> tuple[str, ...]:
    none = "" if config.endpoints else ", and lists none"
    given = [name for name in GATEWAY_LISTS.values() if environ.get(name, "").strip()]
    return tuple(f"{name} is not followed: {file} owns the list of endpoints{none}" for name in given)


def _check_ports(effective: Effective[GatewayConfig]) -> None:
    listen = effective.value.listen
    if listen.port == listen.metrics_port:
        problem = f"{listen.port} is also listen.port; gRPC and HTTP need a port each"
        key = "listen.metrics_port"
        raise ConfigError([Fault(key, problem, effective.sources[key])])


def _unknown(environ: Mapping[str, str]) -> list[Fault]:
    known = [*GATEWAY_VARIABLES, *_PLUMBING]
    names = sorted(name for name in environ if name.startswith(GATEWAY_PREFIX) and name not in known)
    faults = []
    for name in names:
        fault = unknown_variable(name, GATEWAY_PREFIX, known)
        # What the rule of the other keys leads to.
        meant = GATEWAY_LISTS.get(name.removeprefix(GATEWAY_PREFIX).lower())
        faults.append(fault if meant is None else replace(fault, suggestion=meant))
    return faults
