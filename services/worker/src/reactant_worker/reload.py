"""SIGHUP: the configuration is read anew, and what a running worker can follow is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from reactant_core import logs
from reactant_core.config import ConfigError, Effective, WorkerConfig
from reactant_worker.effective import refused

_log = logs.get_logger(__name__)

LIVE = frozenset({"log_level"})
"""Keys a running worker follows; every other one takes a restart."""


@final
class Reload:
    """Compares what `read` gives with what the worker runs with; call it at each SIGHUP.

    A configuration with faults is refused: the faults are logged and nothing changes.
    """

    def __init__(self, started: Effective[WorkerConfig], read: Callable[[], Effective[WorkerConfig]]) -> None:
        self._started = _values(started)
        self._log_level = started.value.log_level
        self._read = read

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
        level = found.value.log_level
        # Set only when the file says something new: LogSettings may have changed the level since.
        if level != self._log_level:
            self._log_level = level
            logs.set_level(level)
        values = _values(found)
        differing = {
            key
            for key in values.keys() | self._started.keys()
            if key not in LIVE and values.get(key) != self._started.get(key)
        }
        _log.info("configuration read", log_level=level)
        if differing:
            _log.warning("changed, but only a restart applies it", keys=sorted(differing))


def _values(effective: Effective[WorkerConfig]) -> dict[str, str]:
    return {key: value for key, value, _ in effective.entries()}
