"""Health, readiness and metrics over HTTP, in the caller's event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reactant_core.net import listening_socket

# Seconds a request in flight may take after a stop was asked for.
_STOP_GRACE_SECONDS = 1


@final
@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer of `/readyz`.

    Attributes:
        ready: 200 when true, 503 otherwise.
        detail: what is missing and how far along, as JSON values.
    """

    ready: bool
    detail: Mapping[str, Any] = field(default_factory=dict)


def HealthApp(  # noqa: N802 (an ASGI application, named like one)
    *, ready: Callable[[], Readiness], registry: CollectorRegistry
) -> Starlette:
    """The application behind `serve_health`: `/healthz`, `/readyz`, `/metrics`."""

    async def healthz(_: Request) -> Response:
        return _json({"live": True}, 200)

    async def readyz(_: Request) -> Response:
        answer = ready()
        return _json({"ready": answer.ready, **answer.detail}, 200 if answer.ready else 503)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(preferred(request.headers.get("accept", "")))
        return Response(encode(registry), headers={"content-type": content_type})

    return Starlette(
        routes=[
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
            Route("/metrics", metrics, methods=["GET"]),
        ]
    )


def preferred(accept: str) -> str:
    """The media range of an Accept header the client likes best, among those with a page of their own.

    prometheus_client takes the first one it knows, whatever the weights (RFC 9110, 12.5.1) say.
    """
    best, best_weight = "", 0.0
    for item in accept.split(","):
        media, *parameters = (part.strip() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.lower().startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if media in ("application/openmetrics-text", "text/plain", "text/*", "*/*") and weight > best_weight:
            best, best_weight = item.strip(), weight
    return best


def _json(body: Mapping[str, Any], status: int) -> Response:
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, default=str)
    return Response(
        text + "\n",
        status_code=status,
        headers={"content-type": "application/json", "cache-control": "no-store"},
    )


@final
class WebServer:
    """An ASGI application on a port of its own; made by `serve_health`."""

    def __init__(self, app: Any, host: str, port: int) -> None:
        self._app = app
        self._host = host
        self._asked_port = port
        self._server: uvicorn.Server | None = None
        self._ticks: asyncio.Task[None] | None = None
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The port in use; known after `start`."""
        if self._port is None:
            raise RuntimeError("the web server has not been started")
        return self._port

    async def start(self) -> None:
        """Listens and answers from here on.

        Raises:
            BindError: taken, not resolvable, or not ours; names host:port.
        """
        sock = listening_socket(self._host, self._asked_port)
        self._port = sock.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_STOP_GRACE_SECONDS,
        )
        config.load()
        server = uvicorn.Server(config)
        # The steps of Server.serve without its signal handlers: signals belong to reactant_core.lifecycle.
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[sock])
        self._server = server
        self._ticks = asyncio.create_task(server.main_loop(), name=f"web:{self._port}")

    async def stop(self) -> None:
        """Closes the port, lets requests in flight finish (1 s), closes the connections. May be repeated."""
        server, ticks = self._server, self._ticks
        if server is None or ticks is None:
            return
        self._server = self._ticks = None
        # Its loop only renews the date header and would sleep on for up to 0.1 s.
        ticks.cancel()
        await asyncio.gather(ticks, return_exceptions=True)
        await server.shutdown()


def serve_health(
    host: str, port: int, *, ready: Callable[[], Readiness], registry: CollectorRegistry
) -> WebServer:
    """A server, not yet started, of `/healthz`, `/readyz` and `/metrics` on `host`:`port` (0: a free one).

    `ready` and the registry's collectors are called on the event loop and must not block.
    """
    return WebServer(HealthApp(ready=ready, registry=registry), host, port)
