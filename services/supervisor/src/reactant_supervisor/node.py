"""Wires a planned node together and runs it on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from reactant_core.config import ConfigError
from reactant_core.config.gateway import LISTEN_FDS_VARIABLE
from reactant_core.lifecycle import Stop
from reactant_core.logs import get_logger
from reactant_core.net import BindError, format_address
from reactant_core.notify import Notifier
from reactant_policy.restarts import RestartPolicy
from reactant_supervisor import service
from reactant_supervisor.announce import Announcer
from reactant_supervisor.child_life import ChildLife
from reactant_supervisor.children import Child
from reactant_supervisor.gateway_plan import GatewayPlan
from reactant_supervisor.model_index import list_models
from reactant_supervisor.node_life import NodeLife
from reactant_supervisor.output import LineOutput
from reactant_supervisor.plan import NODE_FILE_NAME, NodePlan
from reactant_supervisor.preflight import close_sockets
from reactant_supervisor.process_spec import ProcessSpec
from reactant_supervisor.readiness import ask, dialled, wait_drained
from reactant_supervisor.run_dir import RunDir
from reactant_supervisor.worker_plan import WorkerPlan

_log = get_logger(__name__)


async def serve_node(
    stop: Stop,
    *,
    plan: NodePlan,
    replan: Callable[[], NodePlan],
    run_dir: RunDir,
    policy: RestartPolicy,
    output: LineOutput,
    sockets: Sequence[socket.socket],
    environ: Mapping[str, str],
) -> int:
    """Runs the node until `stop` is requested or a child is given up; returns the exit code.

    Args:
        stop: the request.
        plan: what to run.
        replan: the plan that files and environment give now. Raises ConfigError.
        run_dir: for sockets.
        policy: for each child alone.
        output: for everything that children write.
        sockets: the gateway's, gRPC first; closed when the end begins.
        environ: where systemd says how it is told.
    """
    notifier = Notifier(environ)
    announcer = _announcer(plan, notifier)
    life = _life(plan, announcer, policy=policy, output=output, sockets=sockets)

    def reload() -> None:
        if was_terminal and not output.isatty():
            # The same signal says that the terminal is gone, and with it whoever would end the node.
            stop.request("the terminal was closed")
            return
        _read_anew(plan, replan, run_dir)
        asked = [child.name for child in life.children if child.hang_up()]
        _log.info(f"SIGHUP: handed on to {', '.join(asked) or 'no process'}")

    def stopping() -> None:
        notifier.stopping()
        # Nobody is started anew: when the gateway closes its own, a connection is refused, not left waiting.
        close_sockets(sockets)

    was_terminal = output.isatty()
    stop.on_reload = reload
    for worker in plan.workers:
        if worker.unix_socket is not None:
            run_dir.file(worker.unix_socket.name)
    servicer = service.SupervisorServicer(
        plan,
        life,
        announcer,
        drain=partial(stop.request, "Drain"),
        stopping=stop.requested.is_set,
    )
    async with _answering(servicer, run_dir), _alive(notifier):
        return await life.run(stop, stopping=stopping)


def _announcer(plan: NodePlan, notifier: Notifier) -> Announcer:
    parts: list[WorkerPlan | GatewayPlan] = [*plan.workers]
    front: WorkerPlan | GatewayPlan | None = plan.gateway
    if plan.gateway is not None:
        parts.append(plan.gateway)
    elif len(plan.workers) == 1:
        front = plan.workers[0]
    shown = [front] if front is not None else plan.workers
    address = ", ".join(
        f"gRPC {format_address(part.host, part.grpc_port)}  "
        f"HTTP http://{format_address(part.host, part.http_port)} (/readyz /metrics)"
        for part in shown
    )
    first = shown[0]
    return Announcer(
        {part.spec.name: partial(ask, dialled(part.host), part.http_port) for part in parts},
        front=front.spec.name if front is not None else None,
        address=address,
        list_models=partial(list_models, format_address(dialled(first.host), first.grpc_port)),
        notifier=notifier,
    )


def _life(
    plan: NodePlan,
    announcer: Announcer,
    *,
    policy: RestartPolicy,
    output: LineOutput,
    sockets: Sequence[socket.socket],
) -> NodeLife:
    async def watch(child: Child) -> None:
        await announcer.follow(child.spec.name)

    def life(spec: ProcessSpec) -> ChildLife:
        return ChildLife(spec, output=output, policy=policy, watch=watch)

    gateway = plan.gateway
    return NodeLife(
        [life(worker.spec) for worker in plan.workers],
        life(_listening(gateway.spec, sockets)) if gateway is not None else None,
        wait_drained=partial(wait_drained, dialled(gateway.host), gateway.http_port)
        if gateway is not None
        else _never,
    )


def _listening(spec: ProcessSpec, sockets: Sequence[socket.socket]) -> ProcessSpec:
    """The gateway's process with the node's sockets."""
    descriptors = [sock.fileno() for sock in sockets]
    named = ",".join(f"{name}={n}" for name, n in zip(("grpc", "http"), descriptors, strict=True))
    return replace(
        spec,
        env={**spec.env, LISTEN_FDS_VARIABLE: named},
        pass_fds=(*spec.pass_fds, *descriptors),
    )


async def _never() -> None:
    await asyncio.Event().wait()


def _read_anew(plan: NodePlan, replan: Callable[[], NodePlan], run_dir: RunDir) -> None:
    """Writes the node file that workers read, as far as what they are allows it."""
    try:
        new = replan()
    except ConfigError as error:
        _log.error(f"SIGHUP: the node's configuration stays as it was: {error}")
        return
    if new.shape != plan.shape:
        _log.warning("SIGHUP: other workers, ports or devices need a restart of the node; nothing is changed")
    elif plan.workers:
        try:
            run_dir.write(NODE_FILE_NAME, new.node_file)
        except OSError as error:
            _log.error(f"SIGHUP: the node file cannot be written: {error}")


@contextlib.asynccontextmanager
async def _answering(servicer: service.SupervisorServicer, run_dir: RunDir) -> AsyncIterator[None]:
    """SupervisorService; a node does without it where it cannot be."""
    try:
        server = await service.serve(servicer, run_dir.file(service.SOCKET_NAME))
    except BindError as error:
        _log.warning(f"no SupervisorService: {error}")
        yield
        return
    try:
        yield
    finally:
        await service.stop(server)


@contextlib.asynccontextmanager
async def _alive(notifier: Notifier) -> AsyncIterator[None]:
    """Tells systemd twice in each of its intervals that the event loop turns."""
    if notifier.watchdog_seconds is None:
        yield
        return

    async def tell(seconds: float) -> None:
        while True:
            notifier.watchdog()
            await asyncio.sleep(seconds)

    telling = asyncio.create_task(tell(notifier.watchdog_seconds / 2))
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait([telling])
