"""A worker's settings as the supervisor sees them before the worker exists."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from reactant_core.config import Effective, NodeConfig
from reactant_core.config.effective import DEFAULT


def worker_variable(key: str) -> str:
    """What sets `key` for every worker: INFERENCE_SERVER_RUNTIME_BACKEND sets `runtime.backend`."""
    return "INFERENCE_SERVER_" + key.replace(".", "_").upper()


def worker_setting(node: Effective[NodeConfig], index: int, key: str) -> tuple[Any, str]:
    """Value and source of a setting as worker `index` will have it: variable, its entry, `global:`."""
    source = node.sources.get(f"global.{key}", DEFAULT)
    if source != worker_variable(key) and index < len(node.value.workers):
        given = entry_setting(node.value, index, key)
        if given is not None:
            return given, node.sources.get(f"workers[{index}].{key}", f"workers[{index}]")
    return _at(node.value.global_, key), source


def entry_setting(config: NodeConfig, index: int, key: str) -> Any:
    """What the entry of worker `index` sets for `key`, None when it sets nothing."""
    value: Any = config.workers[index] if index < len(config.workers) else None
    for part in key.split("."):
        if not isinstance(value, BaseModel) or part not in value.model_fields_set:
            return None
        value = getattr(value, part)
    return value


def _at(value: Any, key: str) -> Any:
    for part in key.split("."):
        value = getattr(value, part)
    return value
