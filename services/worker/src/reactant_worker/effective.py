"""The configuration as this worker follows it: said at start, and what it does not follow."""

from __future__ import annotations

from collections import defaultdict

from reactant_core.config import Effective, WorkerConfig
from reactant_core.config.effective import DEFAULT
from reactant_core.logs import get_logger

_log = get_logger(__name__)

# Accepted by the configuration, for the worker that is to come, and not followed by this one. Nothing is
# evicted yet, so that a model's residency, a floor, holds whatever it is.
_NOT_FOLLOWED = (
    "runtime.autotune",
    "runtime.autotune_cache",
    "runtime.autotune_cache_dir",
    "runtime.shared_host_weights",
    "runtime.shared_host_weights_mode",
    "runtime.weight_cache_fraction",
    "runtime.weight_cache_wiggle_fraction",
    "scheduler.compaction_interval",
)


def log_configuration(effective: Effective[WorkerConfig]) -> None:
    """Logs every value with its source, a line for each section."""
    sections: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for key, value, source in effective.entries():
        section, _, name = key.rpartition(".")
        sections[section or "worker"][name] = value if source == DEFAULT else f"{value} ({source})"
    for section, values in sections.items():
        _log.info("configuration", section=section, **values)


def refused(effective: Effective[WorkerConfig]) -> list[str]:
    """Settings that must not be passed over in silence and that this version cannot honour."""
    config = effective.value
    faults = []
    if config.endpoints.tls is not None:
        faults.append("endpoints.tls is not offered by this version; put a TLS proxy in front, or remove it")
    if config.runtime.numerics != "auto":
        faults.append(
            f"runtime.numerics = {config.runtime.numerics} is not offered by this version; use auto"
        )
    return faults


def without_effect(effective: Effective[WorkerConfig]) -> list[str]:
    """Settings someone made that have no effect in this version, a sentence each."""
    notes = []
    for key, value, source in effective.entries():
        if key in _NOT_FOLLOWED and source != DEFAULT:
            notes.append(f"{key} = {value} ({source}) has no effect in this version")
    return notes
