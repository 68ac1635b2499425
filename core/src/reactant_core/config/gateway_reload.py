"""What a running gateway takes over from a configuration read anew."""

from __future__ import annotations

from typing import Any

from reactant_core.config.document import KeyPath, dotted
from reactant_core.config.effective import leaves
from reactant_core.config.gateway import GatewayConfig

_LIVE = frozenset(
    {
        "endpoints",
        "metrics_endpoints",
        "worker_names",
        "worker_client",
        "scheduling",
        "logging",
        "lameduck_seconds",
        "drain_timeout_seconds",
    }
)


def reloadable_changes(old: GatewayConfig, new: GatewayConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Dotted keys that differ: those that take effect in a running gateway, and those that need a restart."""
    before, after = dict(leaves(old)), dict(leaves(new))
    changed = [path for path in before | after if not _equal(before, after, path)]
    # A section that comes or goes differs as a whole.
    keys = [path for path in changed if not any(path[: len(other)] == other != path for other in changed)]
    live = tuple(dotted(path) for path in keys if path[0] in _LIVE)
    return live, tuple(dotted(path) for path in keys if path[0] not in _LIVE)


def reloaded(old: GatewayConfig, new: GatewayConfig) -> GatewayConfig:
    """`old` with everything of `new` that takes effect in a running gateway."""
    return old.model_copy(update={key: getattr(new, key) for key in _LIVE})


def _equal(before: dict[KeyPath, Any], after: dict[KeyPath, Any], path: KeyPath) -> bool:
    return path in before and path in after and bool(before[path] == after[path])
