"""One run of the supervisor: configuration, devices, plan, ports, then a node kept going until the stop."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import TextIO, cast

from reactant_core import lifecycle
from reactant_core.config import ConfigError, Effective, NodeConfig, load_node_config
from reactant_core.config.effective import DEFAULT
from reactant_core.config.gateway import load_gateway_config
from reactant_core.logs import configure_logs, get_logger, set_level
from reactant_core.net import BindError
from reactant_policy.restarts import EX_CONFIG, RestartPolicy
from reactant_supervisor.devices import VISIBLE_DEVICES, Devices, find_devices
from reactant_supervisor.machine import available_cores, probes
from reactant_supervisor.node import serve_node
from reactant_supervisor.node_life import EX_FAILURE
from reactant_supervisor.output import LineOutput, PrefixedStream
from reactant_supervisor.plan import NODE_FILE_NAME, NodePlan, Surroundings, make_plan
from reactant_supervisor.preflight import close_sockets, open_sockets, port_faults
from reactant_supervisor.run_dir import RunDir, open_run_dir

NAME = "supervisor"

_log = get_logger(__name__)


def run(environ: Mapping[str, str], output: LineOutput) -> int:
    """Runs a node configured by `environ` with its log on `output`; returns the exit code."""
    stream = cast("TextIO", PrefixedStream(NAME, output))
    try:
        configure_logs("info", stream=stream, environ=environ)
    except ValueError as error:
        configure_logs("info", stream=stream, environ={})
        _log.error(str(error))
        return EX_CONFIG
    try:
        node = load_node_config(environ)
        devices = _devices(node, environ)
    except ConfigError as error:
        _log.error(str(error))
        return EX_CONFIG
    set_level(node.value.global_.log_level)
    _log.info(f"configuration: {_what_was_set(node)}")
    try:
        run_dir = open_run_dir(node.value.run_dir)
    except OSError as error:
        _log.error(f"no run directory: {error}")
        return EX_FAILURE
    try:
        return _run_in(run_dir, node, devices, environ, output)
    finally:
        run_dir.close()


def _devices(node: Effective[NodeConfig], environ: Mapping[str, str]) -> Devices:
    if node.value.role in ("gateway", "registry"):
        return Devices((), "none needed")
    return find_devices(node, environ.get(VISIBLE_DEVICES), probes())


def _run_in(
    run_dir: RunDir,
    node: Effective[NodeConfig],
    devices: Devices,
    environ: Mapping[str, str],
    output: LineOutput,
) -> int:
    around = Surroundings(
        environ=environ,
        python=sys.executable,
        terminal=output.isatty(),
        cores=available_cores(),
        run_dir=run_dir.path,
    )

    def replan() -> NodePlan:
        return make_plan(load_node_config(environ), devices, partial(load_gateway_config, environ), around)

    try:
        plan = make_plan(node, devices, partial(load_gateway_config, environ), around)
    except ConfigError as error:
        _log.error(str(error))
        return EX_CONFIG
    _say(plan, run_dir)
    faults = port_faults(plan.listeners)
    for fault in faults:
        _log.error(fault)
    if faults:
        return EX_FAILURE
    try:
        sockets = open_sockets(plan.gateway.listeners) if plan.gateway is not None else []
    except BindError as error:
        _log.error(str(error))
        return EX_FAILURE
    try:
        if plan.workers and not _written(run_dir, plan):
            return EX_FAILURE
        policy = RestartPolicy(max_restarts=node.value.supervisor.max_restarts)
        return lifecycle.run(
            partial(
                serve_node,
                plan=plan,
                replan=replan,
                run_dir=run_dir,
                policy=policy,
                output=output,
                sockets=sockets,
                environ=environ,
            )
        )
    finally:
        close_sockets(sockets)


def _written(run_dir: RunDir, plan: NodePlan) -> bool:
    try:
        run_dir.write(NODE_FILE_NAME, plan.node_file)
    except OSError as error:
        _log.error(f"the node file cannot be written: {error}; set REACTANT_RUN_DIR to another directory")
        return False
    return True


def _say(plan: NodePlan, run_dir: RunDir) -> None:
    if plan.workers:
        found = ", ".join(plan.devices.selectors) or f"none, {len(plan.workers)} CPU worker(s)"
        _log.info(f"devices: {found} ({plan.devices.source})")
    # A gateway alone keeps nothing there that anyone looks for.
    if run_dir.note is not None and plan.workers:
        _log.info(run_dir.note)
    for note in plan.notes:
        _log.warning(note)


def _what_was_set(node: Effective[NodeConfig]) -> str:
    """The values that are not built in, with their sources."""
    said = [f"{key} = {value} ({source})" for key, value, source in node.entries() if source != DEFAULT]
    return "; ".join(said) or "all defaults"
