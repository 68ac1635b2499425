"""The supervisor's process: configuration, plan, ports, then one child kept running until the stop."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TextIO, cast

from reactant_core import lifecycle
from reactant_core.config import ConfigError, Effective, NodeConfig, load_node_config
from reactant_core.config.effective import DEFAULT
from reactant_core.logs import configure_logs, get_logger, set_level
from reactant_core.net import format_address
from reactant_policy.restarts import EX_CONFIG, RestartPolicy
from reactant_supervisor.announce import announce_ready
from reactant_supervisor.children import Child
from reactant_supervisor.model_index import list_models
from reactant_supervisor.output import LineOutput, PrefixedStream
from reactant_supervisor.plan import NodePlan, make_plan
from reactant_supervisor.preflight import Listener, port_faults
from reactant_supervisor.readiness import ask
from reactant_supervisor.supervise import Stopped, keep_running

NAME = "supervisor"
EX_FAILURE = 1

_DIALLED = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (compared with, not bound)

_log = get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `reactant-supervisor`.

    Returns:
        0 after a clean stop; 78 when the configuration is refused, here or by a child; 1 when a port is
        taken, a child is given up, or one did not stop by itself.
    """
    argparse.ArgumentParser(
        prog="reactant-supervisor",
        description="Starts ReactantServer on this machine and keeps it running. Configured by the node file "
        "that REACTANT_NODE_FILE names and by environment variables; `reactant config` shows them all.",
    ).parse_args(argv)
    output = LineOutput(sys.stderr.fileno())
    output.start()
    try:
        return _run(os.environ, output)
    finally:
        output.close()


def _run(environ: Mapping[str, str], output: LineOutput) -> int:
    stream = cast("TextIO", PrefixedStream(NAME, output))
    try:
        configure_logs("info", stream=stream, environ=environ)
    except ValueError as error:
        configure_logs("info", stream=stream, environ={})
        _log.error(str(error))
        return EX_CONFIG
    try:
        node = load_node_config(environ)
        plan = make_plan(node, environ, python=sys.executable, terminal=output.isatty())
    except ConfigError as error:
        _log.error(str(error))
        return EX_CONFIG
    set_level(node.value.global_.log_level)
    _log.info(f"configuration: {_what_was_set(node)}")
    for note in plan.notes:
        _log.warning(note)
    faults = port_faults(_listeners(plan))
    for fault in faults:
        _log.error(fault)
    if faults:
        return EX_FAILURE
    policy = RestartPolicy(max_restarts=node.value.supervisor.max_restarts)
    return lifecycle.run(partial(_serve, plan=plan, policy=policy, output=output))


async def _serve(stop: lifecycle.Stop, *, plan: NodePlan, policy: RestartPolicy, output: LineOutput) -> int:
    host = _DIALLED.get(plan.host, plan.host)
    grpc_address = format_address(plan.host, plan.grpc_port)
    http_address = format_address(plan.host, plan.http_port)

    async def watch(child: Child) -> None:
        await announce_ready(
            child.spec.name,
            f"gRPC {grpc_address}  HTTP http://{http_address} (/readyz /metrics)",
            partial(ask, host, plan.http_port),
            partial(list_models, format_address(host, plan.grpc_port)),
        )

    ended = await keep_running(plan.worker, output=output, stop=stop, policy=policy, watch=watch)
    if isinstance(ended, Stopped):
        return 0 if ended.clean else EX_FAILURE
    return EX_CONFIG if ended.configuration_refused else EX_FAILURE


def _listeners(plan: NodePlan) -> tuple[Listener, Listener]:
    return (
        Listener("gRPC", plan.host, plan.grpc_port, "REACTANT_PUBLIC_PORT"),
        Listener("HTTP", plan.host, plan.http_port, "REACTANT_PUBLIC_METRICS_PORT"),
    )


def _what_was_set(node: Effective[NodeConfig]) -> str:
    """The values that are not built in, with their sources."""
    said = [f"{key} = {value} ({source})" for key, value, source in node.entries() if source != DEFAULT]
    return "; ".join(said) or "all defaults"
