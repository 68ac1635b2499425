"""SIGHUP: the configuration is read anew, and what a running worker can follow is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from reactant_core import logs
from reactant_core.config import ConfigError, Effective, WorkerConfig
from reactant_worker.effective import refused

_log = logs.get_logger(__name__)


@final
class Reload:
    """Compares what `read` gives with what the worker runs with; call it at each SIGHUP.

    A configuration with faults is refused: the faults are logged and nothing changes. What is live is set
    only when the configuration says something new, since a request may have changed it meanwhile.

    Args:
        started: what the worker runs with.
        read: gives the configuration as it is now.
        set_weight: puts a model's weight in force.
    """

    def __init__(
        self,
        started: Effective[WorkerConfig],
        read: Callable[[], Effective[WorkerConfig]],
        set_weight: Callable[[str, float], None],
    ) -> None:
        self._started = _values(started)
        self._known = started.value
        self._read = read
        self._set_weight = set_weight

    def __call__(self) -> None:
        """Reads and applies."""
        try:
            found = self._read()
            faults = refused(found)
        except ConfigError as error:
            faults = [str(fault) for fault in error.faults]
        if faults:
            for fault in faults:
                _log.error("configuration refused, the old one stays", fault=fault)
            return
        self._follow(found.value)
        values = _values(found)
        differing = {
            key
            for key in values.keys() | self._started.keys()
            if not _is_live(key) and values.get(key) != self._started.get(key)
        }
        _log.info("configuration read", log_level=found.value.log_level)
        if differing:
            _log.warning("changed, but only a restart applies it", keys=sorted(differing))

    def _follow(self, found: WorkerConfig) -> None:
        before, self._known = self._known, found
        if found.log_level != before.log_level:
            logs.set_level(found.log_level)
        for model in before.scheduler.models.keys() | found.scheduler.models.keys():
            weight = found.scheduler.model(model).weight
            if weight != before.scheduler.model(model).weight:
                self._set_weight(model, weight)
                _log.info("weight set", model=model, weight=weight)


def _values(effective: Effective[WorkerConfig]) -> dict[str, str]:
    return {key: value for key, value, _ in effective.entries()}


def _is_live(key: str) -> bool:
    # `scheduler.models` itself is a key only where it is empty.
    return key in ("log_level", "scheduler.models") or (
        key.startswith("scheduler.models.") and key.endswith(".weight")
    )
