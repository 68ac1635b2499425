"""The node file that workers read: what the node was given, with everything decided written out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from reactant_core.config import Effective, NodeConfig
from reactant_core.config.document import KeyPath, dotted
from reactant_core.config.effective import DEFAULT, leaves
from reactant_supervisor.devices import Devices
from reactant_supervisor.worker_plan import WorkerPlan

_HEAD = "# Written by the supervisor from the node file and the environment; changes here are lost.\n"


def node_file_text(node: Effective[NodeConfig], devices: Devices, workers: Sequence[WorkerPlan]) -> str:
    """What was set for the node, every worker listed with its ports, its device and what else it is given.

    Built-in defaults stay out, so that a worker sees them as such.
    """
    tree = node.value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for path, _ in leaves(node.value):
        if path[0] != "workers" and node.sources.get(dotted(path), DEFAULT) == DEFAULT:
            _remove(tree, path)
    given = tree.pop("workers", [])
    tree["gpus"] = list(devices.selectors) or 0
    tree["workers"] = [_entry(given[index] if given else {}, worker) for index, worker in enumerate(workers)]
    return _HEAD + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _remove(tree: dict[str, Any], path: KeyPath) -> None:
    """Takes a leaf out of `tree`, and the sections that hold nothing then."""
    key, rest = str(path[0]), path[1:]
    if not rest:
        tree.pop(key, None)
    elif isinstance(below := tree.get(key), dict):
        _remove(below, rest)
        if not below:
            del tree[key]


def _entry(given: dict[str, Any], worker: WorkerPlan) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": worker.name, "port": worker.grpc_port}
    if worker.device is not None:
        entry["gpu"] = worker.device
    entry |= {key: value for key, value in given.items() if key not in ("name", "port", "gpu")}
    for key, value in worker.settings.items():
        *sections, field = key.split(".")
        at = entry
        for section in sections:
            at = at.setdefault(section, {})
        at[field] = value
    return entry
