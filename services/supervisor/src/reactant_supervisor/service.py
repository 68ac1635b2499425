"""SupervisorService: what a person or a program asks of a running node."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import grpc
import grpc.aio

from reactant_core.clock import SYSTEM_CLOCK, Clock
from reactant_core.rpc import RpcServer, create_server
from reactant_proto import supervisor_pb2, supervisor_pb2_grpc
from reactant_supervisor.announce import Announcer
from reactant_supervisor.node_life import NodeLife
from reactant_supervisor.plan import NodePlan

SOCKET_NAME = "supervisor.sock"

_STOP_GRACE_SECONDS = 0.2

Context = grpc.aio.ServicerContext[Any, Any]


@final
class SupervisorServicer(supervisor_pb2_grpc.SupervisorServiceServicer):
    """Answers from what the node's parts know; changes nothing itself."""

    def __init__(
        self,
        plan: NodePlan,
        life: NodeLife,
        announcer: Announcer,
        *,
        drain: Callable[[], None],
        stopping: Callable[[], bool],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._plan = plan
        self._life = life
        self._announcer = announcer
        self._drain = drain
        self._stopping = stopping
        self._clock = clock

    async def Status(  # noqa: N802
        self, request: supervisor_pb2.NodeStatusRequest, context: Context
    ) -> supervisor_pb2.NodeStatusResponse:
        devices = {worker.name: worker.device or "" for worker in self._plan.workers}
        now = self._clock.monotonic()
        answer = supervisor_pb2.NodeStatusResponse(
            node=socket.gethostname(),
            role=self._plan.role,
            ready=not self._stopping() and await self._announcer.node_ready(),
            stopping=self._stopping(),
            devices=self._plan.devices.selectors,
            devices_source=self._plan.devices.source,
            pid=os.getpid(),
        )
        for life in self._life.children:
            state = life.state
            answer.children.add(
                name=life.name,
                pid=state.pid or 0,
                state=state.word,
                restarts=state.restarts,
                failures=state.failures,
                state_seconds=now - state.since,
                last_exit=state.last_exit,
                progress=self._announcer.progress.get(life.name, "") if state.pid else "",
                device=devices.get(life.name, ""),
            )
        return answer

    async def RestartChild(  # noqa: N802
        self, request: supervisor_pb2.RestartChildRequest, context: Context
    ) -> supervisor_pb2.RestartChildResponse:
        if self._stopping():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the node is stopping")
        names = [life.name for life in self._life.children]
        for life in self._life.children:
            if life.name == request.name:
                life.restart()
                return supervisor_pb2.RestartChildResponse()
        await context.abort(
            grpc.StatusCode.NOT_FOUND, f"no process is called {request.name!r}; there are {', '.join(names)}"
        )
        raise AssertionError("abort does not return")

    async def Drain(  # noqa: N802
        self, request: supervisor_pb2.DrainRequest, context: Context
    ) -> supervisor_pb2.DrainResponse:
        self._drain()
        return supervisor_pb2.DrainResponse()


async def serve(servicer: SupervisorServicer, path: Path) -> RpcServer:
    """Answers at `path`, for this user and group.

    Raises:
        BindError: nothing can listen there.
    """
    # Few calls, and a server less to start than the native transport's.
    server = create_server(transport="grpcio")
    supervisor_pb2_grpc.add_SupervisorServiceServicer_to_server(servicer, server.server)
    server.bind_unix(path)
    await server.start()
    return server


async def stop(server: RpcServer) -> None:
    """Ends it; a call in flight has a moment."""
    await server.stop(_STOP_GRACE_SECONDS)
