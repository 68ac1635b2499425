"""Health, readiness and metrics over HTTP, in the caller's event loop."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE_OPENMETRICS
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


class MetricsPage(Protocol):
    """Renders a metrics page that is more than one registry."""

    async def __call__(self, *, openmetrics: bool) -> bytes:
        """The page in OpenMetrics 1.0, or in the Prometheus text format 0.0.4."""
        ...


def HealthApp(  # noqa: N802 (an ASGI application, named like one)
    *,
    ready: Callable[[], Readiness],
    registry: CollectorRegistry | None = None,
    page: MetricsPage | None = None,
) -> Starlette:
    """The application behind `serve_health`: `/healthz`, `/readyz`, `/metrics`."""
    if (registry is None) == (page is None):
        raise ValueError("metrics come from a registry or from a page: give one of them")

    async def healthz(_: Request) -> Response:
        return _json({"live": True}, 200)

    async def readyz(_: Request) -> Response:
        answer = ready()
        return _json({"ready": answer.ready, **answer.detail}, 200 if answer.ready else 503)

    async def metrics(request: Request) -> Response:
        accept = preferred(request.headers.get("accept", ""))
        if page is not None:
            openmetrics = accept.startswith("application/openmetrics-text")
            content_type = CONTENT_TYPE_OPENMETRICS if openmetrics else CONTENT_TYPE_PLAIN_0_0_4
            return Response(await page(openmetrics=openmetrics), headers={"content-type": content_type})
        assert registry is not None
        encode, content_type = choose_encoder(accept)
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

    def __init__(self, app: Any, host: str, port: int, sock: socket.socket | None = None) -> None:
        self._app = app
        self._sock = sock
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
        sock = self._sock or listening_socket(self._host, self._asked_port)
        sock.setblocking(False)
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
    host: str,
    port: int,
    *,
    ready: Callable[[], Readiness],
    registry: CollectorRegistry | None = None,
    page: MetricsPage | None = None,
    sock: socket.socket | None = None,
) -> WebServer:
    """A server, not yet started, of `/healthz`, `/readyz` and `/metrics` on `host`:`port` (0: a free one).

    Args:
        host: where to listen.
        port: where to listen.
        ready: called on the event loop, must not block.
        registry: its collectors are called on the event loop and must not block.
        page: in a registry's stead, renders the metrics page.
        sock: listens already, in `host`:`port`'s stead; closed by `stop`.
    """
    return WebServer(HealthApp(ready=ready, registry=registry, page=page), host, port, sock)
