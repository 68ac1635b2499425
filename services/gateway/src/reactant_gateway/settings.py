"""The configuration as this gateway follows it: what it refuses, and what it takes over while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import final

from reactant_core.config import ConfigError, Effective
from reactant_core.config.effective import DEFAULT
from reactant_core.config.gateway import GatewayConfig, load_gateway_config
from reactant_core.config.gateway_reload import reloadable_changes, reloaded
from reactant_core.config.gateway_sections import ModelRoutingConfig
from reactant_core.logs import get_logger, set_level
from reactant_core.packing.packer import LPT_PACKING
from reactant_policy.routing.spread import SPREADS

_log = get_logger(__name__)


def refused(config: GatewayConfig) -> list[str]:
    """Settings that this version cannot honour and must not pass over in silence."""
    faults = []
    if config.tls is not None:
        faults.append("tls is not offered by this version; put a TLS proxy in front, or remove it")
    if config.registry is not None:
        faults.append("registry is not offered by this version; list the workers in endpoints")
    if config.registry is None and not config.endpoints:
        faults.append("no workers: list their addresses in endpoints or in REACTANT_GATEWAY_WORKERS")
    return faults


def without_effect(effective: Effective[GatewayConfig]) -> list[str]:
    """Settings someone made that have no effect as things are, a sentence each."""
    given = [entry for entry in effective.entries() if entry[2] != DEFAULT]
    reasons = ((key, value, source, _no_effect(key, effective.value)) for key, value, source in given)
    return [f"{key} = {value} ({source}) has no effect: {why}" for key, value, source, why in reasons if why]


def _no_effect(key: str, config: GatewayConfig) -> str | None:
    """Why a setting does nothing as things are; None for one that does something."""
    scheduling = config.scheduling
    if scheduling.mode != LPT_PACKING:
        if key == "startup_wait_seconds" or (
            key.startswith("scheduling.") and key not in ("scheduling.mode", "scheduling.work_basis")
        ):
            return "it is for lpt_packing"
        if key == "scheduling.work_basis" and not SPREADS[scheduling.mode].looks_at_load:
            return f"{scheduling.mode} does not look at work"
        return None
    if key == "scheduling.work_basis" and scheduling.routing_policy == "fill_rr":
        return "routing_policy fill_rr does not look at work"
    if key == "scheduling.routing_fill_factor" and all(
        (own.fill_mode or scheduling.routing_fill_mode) == "spread"
        for own in (ModelRoutingConfig(), *scheduling.models.values())
    ):
        return "no model's fill mode counts batches"
    if key == "scheduling.compaction_mode" and scheduling.compaction_mode == "scheduled":
        return "this version evicts no weights, and has no set to load: it does what eager does"
    if key == "scheduling.compaction_interval" and scheduling.compaction_mode == "off":
        return "compaction_mode is off"
    return None


@final
class Reload:
    """Reads the configuration anew; a bad one is refused, and the one in force stays.

    Args:
        config: in force.
        follow: takes over what changed.
        refusals: why a configuration cannot be followed as things are, a sentence each.
    """

    def __init__(
        self,
        config: GatewayConfig,
        follow: Callable[[GatewayConfig], None],
        refusals: Callable[[GatewayConfig], list[str]] = lambda _: [],
    ) -> None:
        self._config = config
        self._follow = follow
        self._refusals = refusals

    def __call__(self) -> None:
        """Called at SIGHUP."""
        try:
            new = load_gateway_config(os.environ)
        except ConfigError as error:
            _log.error(f"reload refused, the configuration in force stays: {error}")
            return
        for note in new.notes:
            _log.warning(note)
        if refusals := [*refused(new.value), *self._refusals(new.value)]:
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
