"""Node file, environment and defaults into one effective configuration, or into all of their faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, final

from reactant_core.config.accepted import nearest, without_empty
from reactant_core.config.document import Document, KeyPath, dotted, parse_document, read_document
from reactant_core.config.effective import DEFAULT, Effective, leaves
from reactant_core.config.environment import Variable, read_variables, unknown_variable, variables
from reactant_core.config.faults import ConfigError, Fault
from reactant_core.config.layers import Layer, checked, flatten, put, validated
from reactant_core.config.node import NodeConfig, WorkerEntry
from reactant_core.config.worker import DEFAULT_NAME, WorkerConfig

WORKER_PREFIX = "INFERENCE_SERVER_"
NODE_PREFIX = "REACTANT_"
NODE_FILE_VARIABLE = "REACTANT_NODE_FILE"
NODE_FILE_RESOURCE = "node.default.yaml"

META_CONCURRENCY_VARIABLE = "REACTANT_META_CONCURRENCY"

WORKER_VARIABLES = variables(
    WorkerConfig, WORKER_PREFIX, renamed={"meta_concurrency": META_CONCURRENCY_VARIABLE}
)
"""Every variable that sets a value of a worker, by name: `INFERENCE_SERVER_*`, and one other."""

NODE_VARIABLES = variables(NodeConfig, NODE_PREFIX, skip=("global",))
"""Every `REACTANT_*` variable that sets a value of the node file, by name."""

# Read elsewhere: by logs, the gateway, the registry and the set-up.
_OTHER_VARIABLES = (
    NODE_FILE_VARIABLE,
    "REACTANT_GATEWAY_FILE",
    "REACTANT_LOG_FORMAT",
    "REACTANT_GPU",
    "REACTANT_GPU_VERSION",
)
_OTHER_PREFIXES = ("REACTANT_GATEWAY_", "REACTANT_REGISTRY_")


def default_node_yaml() -> str:
    """The built-in node file: every key with its default and what it means."""
    return resources.files("reactant_core.config").joinpath(NODE_FILE_RESOURCE).read_text(encoding="utf-8")


def load_node_config(environ: Mapping[str, str], *, node_file: Path | None = None) -> Effective[NodeConfig]:
    """The configuration of this machine.

    `node_file`, else the file `REACTANT_NODE_FILE` names, else the built-in defaults; over it `REACTANT_*`
    variables and, in `global`, `INFERENCE_SERVER_*` ones (`INFERENCE_SERVER_MODEL_DIRS` sets `model_repo`).

    Raises:
        ConfigError: everything wrong with file and environment.
    """
    given = _read(environ, node_file)
    layer = given.node_layer()
    for variable, value in given.worker_values.items():
        if variable.path == ("model_dirs",):
            put(layer, ("model_repo",), (value, variable.name))
        elif variable.path != ("name",):
            put(layer, ("global", *variable.path), (value, variable.name))
    effective = validated(NodeConfig, layer)
    # A list is one value to the layers; its entries have lines of their own.
    entries = (path for path, _ in leaves(effective.value) if path[0] == "workers" and len(path) > 1)
    sources = {dotted(path): given.document.source(path) for path in entries}
    return Effective(effective.value, {**effective.sources, **sources})


def load_worker_config(
    environ: Mapping[str, str], *, node_file: Path | None = None, worker: str | None = None
) -> Effective[WorkerConfig]:
    """The configuration of one worker process.

    Lowest first: defaults, what the node file derives (ports, folders), its `global:`, the entry of
    `workers:` named `worker` (`INFERENCE_SERVER_NAME` when None, else the first), `models:` pins, the
    environment.

    Raises:
        ConfigError: everything wrong with file and environment, or no such worker.
    """
    given = _read(environ, node_file)
    document = given.document
    node = validated(NodeConfig, given.node_layer())
    asked = worker or environ.get(f"{WORKER_PREFIX}NAME", "").strip() or None
    index, entry = _entry(node.value, asked, document)
    layer = _derived(node, index)
    if entry is not None:
        layer["name",] = (entry.name, document.source(("workers", index, "name")))
    elif asked is not None:
        layer["name",] = (asked, f"{WORKER_PREFIX}NAME" if worker is None else "asked for")
    for path, leaf in flatten(document.tree.get("global", {}), document, ("global",)).items():
        put(layer, path, leaf)
    if entry is not None:
        _lay_entry(layer, entry, index, document)
    for model, pinned in node.value.models.items():
        path = ("scheduler", "models", model, "residency")
        if (entry.name if entry is not None else asked or DEFAULT_NAME) in pinned and path not in layer:
            put(layer, path, ("device", document.source(("models", model))))
    for variable, value in given.worker_values.items():
        if variable.path != ("name",):
            put(layer, variable.path, (value, variable.name))
    return validated(WorkerConfig, layer)


@final
@dataclass(frozen=True, slots=True)
class _Given:
    """What file and environment say, found without fault."""

    document: Document
    node_values: Mapping[Variable, Any]
    worker_values: Mapping[Variable, Any]

    def node_layer(self) -> Layer:
        """The file with the `REACTANT_*` variables over it."""
        layer = flatten(self.document.tree, self.document)
        for variable, value in self.node_values.items():
            put(layer, variable.path, (value, variable.name))
        return layer


def _read(environ: Mapping[str, str], node_file: Path | None) -> _Given:
    named = environ.get(NODE_FILE_VARIABLE, "").strip()
    if node_file is not None:
        document = read_document(node_file, "node file")
    elif named:
        document = read_document(Path(named), NODE_FILE_VARIABLE)
    else:
        document = Document(parse_document(default_node_yaml(), DEFAULT).tree, DEFAULT)
    document = replace(document, tree=without_empty(document.tree, NodeConfig))
    node_values, node_faults = read_variables(environ, NODE_VARIABLES)
    worker_values, worker_faults = read_variables(environ, WORKER_VARIABLES)
    faults = [*_file_faults(document), *node_faults, *worker_faults, *_unknown(environ)]
    if faults:
        raise ConfigError(faults)
    return _Given(document, node_values, worker_values)


def _file_faults(document: Document) -> list[Fault]:
    config, faults = checked(NodeConfig, document)
    return faults if config is None else faults + _contradictions(config, document)


def _contradictions(config: NodeConfig, document: Document) -> list[Fault]:
    """What each value alone cannot show."""
    faults = []
    names: dict[str, int] = {}
    ports: dict[int, int] = {}
    for index, entry in enumerate(config.workers):
        if entry.name in names:
            path: KeyPath = ("workers", index, "name")
            faults.append(
                Fault(
                    dotted(path),
                    f"{entry.name!r} is also workers[{names[entry.name]}]",
                    document.source(path),
                )
            )
        names.setdefault(entry.name, index)
        port = entry.port if entry.port is not None else config.base_port + index
        if port in ports:
            path = ("workers", index, "port")
            faults.append(
                Fault(
                    dotted(path), f"{port} is also the port of workers[{ports[port]}]", document.source(path)
                )
            )
        ports.setdefault(port, index)
    for model, pinned in config.models.items():
        for index, name in enumerate(pinned):
            if names and name not in names:
                path = ("models", model, index)
                faults.append(
                    Fault(
                        dotted(path),
                        f"no worker is called {name!r}; accepted are {', '.join(names)}",
                        document.source(path),
                        nearest(name, list(names)),
                    )
                )
    return faults


def _unknown(environ: Mapping[str, str]) -> list[Fault]:
    faults = [
        unknown_variable(name, WORKER_PREFIX, list(WORKER_VARIABLES))
        for name in sorted(environ)
        if name.startswith(WORKER_PREFIX) and name not in WORKER_VARIABLES
    ]
    known = [*NODE_VARIABLES, META_CONCURRENCY_VARIABLE, *_OTHER_VARIABLES]
    for name in sorted(environ):
        # Others may keep variables under this prefix: only what looks like a slip is a fault.
        if name.startswith(NODE_PREFIX) and name not in known and not name.startswith(_OTHER_PREFIXES):
            fault = unknown_variable(name, NODE_PREFIX, known)
            if fault.suggestion is not None:
                faults.append(fault)
    return faults


def _entry(node: NodeConfig, name: str | None, document: Document) -> tuple[int, WorkerEntry | None]:
    """The worker's index and, when the file lists workers, its entry."""
    if node.workers:
        for index, entry in enumerate(node.workers):
            if name in (None, entry.name):
                return index, entry
        names = [entry.name for entry in node.workers]
        problem = f"no worker is called {name!r}; accepted are {', '.join(names)}"
        raise ConfigError(
            [Fault("workers", problem, document.source(("workers",)), nearest(str(name), names))]
        )
    number = re.fullmatch(r"worker(\d{1,4})", name or DEFAULT_NAME)
    return int(number[1]) if number else 0, None


def _derived(node: Effective[NodeConfig], index: int) -> Layer:
    """What the top of the node file means for its worker number `index`."""
    layer: Layer = {("model_dirs",): (node.value.model_repo, node.sources["model_repo"])}
    for key, base_key in (("port", "base_port"), ("metrics_port", "metrics_base_port")):
        port = getattr(node.value, base_key) + index
        source = node.sources[base_key]
        if index or source != DEFAULT:
            source = f"{base_key} + {index}, {source}"
        layer["endpoints", key] = (port, source)
    return layer


def _lay_entry(layer: Layer, entry: WorkerEntry, index: int, document: Document) -> None:
    """Puts what the entry of `workers:` sets over `global:`."""
    raw = {
        key: value
        for key, value in document.tree["workers"][index].items()
        if key not in ("name", "port", "gpu")
    }
    if entry.port is not None:
        put(layer, ("endpoints", "port"), (entry.port, document.source(("workers", index, "port"))))
    if isinstance(entry.gpu, int):
        put(layer, ("runtime", "device_ordinal"), (entry.gpu, document.source(("workers", index, "gpu"))))
    for path, leaf in flatten(raw, document, ("workers", index)).items():
        put(layer, path, leaf)
