"""The configuration as this gateway follows it: what it refuses, and what it takes over while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import final

from reactant_core.config import ConfigError, Effective
from reactant_core.config.effective import DEFAULT
from reactant_core.config.gateway import GatewayConfig, load_gateway_config
from reactant_core.config.gateway_reload import reloadable_changes, reloaded
from reactant_core.logs import get_logger, set_level
from reactant_policy.routing.spread import SPREADS

_log = get_logger(__name__)


def refused(config: GatewayConfig) -> list[str]:
    """Settings that this version cannot honour and must not pass over in silence."""
    faults = []
    if config.tls is not None:
        faults.append("tls is not offered by this version; put a TLS proxy in front, or remove it")
    if config.registry is not None:
        faults.append("registry is not offered by this version; list the workers in endpoints")
    if config.scheduling.mode not in SPREADS:
        offered = ", ".join(SPREADS)
        faults.append(
            f"scheduling.mode = {config.scheduling.mode} is not offered by this version; "
            f"accepted are {offered}"
        )
    if config.registry is None and not config.endpoints:
        faults.append("no workers: list their addresses in endpoints or in REACTANT_GATEWAY_WORKERS")
    return faults


def without_effect(effective: Effective[GatewayConfig]) -> list[str]:
    """Settings someone made that have no effect as things are, a sentence each."""
    mode = effective.value.scheduling.mode
    unused = {
        "scheduling.default_replicas": "it is for lpt_packing",
        "startup_wait_seconds": "it is for lpt_packing",
    }
    if not SPREADS[mode].looks_at_load:
        unused["scheduling.work_basis"] = f"{mode} does not look at work"
    return [
        f"{key} = {value} ({source}) has no effect: {unused[key]}"
        for key, value, source in effective.entries()
        if key in unused and source != DEFAULT
    ]


@final
class Reload:
    """Reads the configuration anew; a bad one is refused, and the one in force stays.

    Args:
        config: in force.
        follow: takes over what changed.
    """

    def __init__(self, config: GatewayConfig, follow: Callable[[GatewayConfig], None]) -> None:
        self._config = config
        self._follow = follow

    def __call__(self) -> None:
        """Called at SIGHUP."""
        try:
            new = load_gateway_config(os.environ)
        except ConfigError as error:
            _log.error(f"reload refused, the configuration in force stays: {error}")
            return
        for note in new.notes:
            _log.warning(note)
        if refusals := refused(new.value):
            _log.error(f"reload refused, the configuration in force stays: {'; '.join(refusals)}")
            return
        for note in without_effect(new):
            _log.warning(note)
        live, restart = reloadable_changes(self._config, new.value)
        if restart:
            _log.warning("these changes need a restart", keys=", ".join(restart))
        self._config = reloaded(self._config, new.value)
        set_level(self._config.logging.level)
        self._follow(self._config)
        _log.info("reloaded", changed=", ".join(live) or "nothing")
