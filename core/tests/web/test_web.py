"""Health, readiness and metrics over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from reactant_core.net import BindError, listening_socket
from reactant_core.testing import async_test
from reactant_core.web import Readiness, WebServer, preferred, serve_health


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: str


async def get(port: int, path: str, *, accept: str | None = None, method: str = "GET") -> Answer:
    """One HTTP/1.1 request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    accepting = "" if accept is None else f"Accept: {accept}\r\n"
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{accepting}\r\n".encode())
    raw = (await asyncio.wait_for(reader.read(), 10)).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = raw.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(status.split()[1]), headers, body)


class Service:
    """What the server under test reports on."""

    def __init__(self) -> None:
        self.readiness = Readiness(False, {"models": {"done": 1, "total": 3}, "seconds_left": 12.5})
        self.registry = CollectorRegistry()
        self.requests = Counter("worker_requests", "Requests.", ["model"], registry=self.registry)
        self.latency = Histogram("worker_seconds", "Latency.", registry=self.registry)
        self.requests.labels("minilm").inc()
        self.latency.observe(0.1)


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[WebServer]:
    server = serve_health("127.0.0.1", 0, ready=lambda: service.readiness, registry=service.registry)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@async_test
async def test_healthz_and_readyz() -> None:
    service = Service()
    async with running(service) as server:
        assert (await get(server.port, "/healthz")).status == 200
        answer = await get(server.port, "/readyz")
        assert answer.status == 503
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert json.loads(answer.body) == {
            "ready": False,
            "models": {"done": 1, "total": 3},
            "seconds_left": 12.5,
        }
        service.readiness = Readiness(True, {"модели": 3})
        answer = await get(server.port, "/readyz")
        assert (answer.status, json.loads(answer.body)) == (200, {"ready": True, "модели": 3})
        head = await get(server.port, "/readyz", method="HEAD")
        assert (head.status, head.body) == (200, "")


@async_test
async def test_a_failing_readiness_is_a_500_and_the_server_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Readiness:
        raise RuntimeError("state lost")

    server = serve_health("127.0.0.1", 0, ready=broken, registry=CollectorRegistry())
    await server.start()
    assert (await get(server.port, "/readyz")).status == 500
    assert (await get(server.port, "/healthz")).status == 200
    assert "state lost" in caplog.text
    await server.stop()


@async_test
async def test_other_paths_and_methods() -> None:
    async with running(Service()) as server:
        assert (await get(server.port, "/nothing")).status == 404
        assert (await get(server.port, "/metrics", method="POST")).status == 405


TEXT = "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    "accept", [None, "*/*", "text/plain", "text/html", "application/json, text/plain;q=0.5", "", ";;,,q=x"]
)
@async_test
async def test_metrics_as_text(accept: str | None) -> None:
    async with running(Service()) as server:
        answer = await get(server.port, "/metrics", accept=accept)
        assert (answer.status, answer.headers["content-type"]) == (200, TEXT)
        families = {family.name: family for family in parse_text(answer.body)}
        assert families["worker_requests"].samples[0].value == 1
        assert "# EOF" not in answer.body


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=1.0.0",
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
        "text/plain;q=0.2, application/openmetrics-text; version=1.0.0; q=0.9",
    ],
)
@async_test
async def test_metrics_as_openmetrics(accept: str) -> None:
    async with running(Service()) as server:
        answer = await get(server.port, "/metrics", accept=accept)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        )
        families = {family.name: family for family in parse_openmetrics(answer.body)}  # type: ignore[no-untyped-call]
        assert {"worker_requests", "worker_seconds"} <= set(families)
        assert answer.body.endswith("# EOF\n")
        assert answer.body.count("# EOF") == 1


@async_test
async def test_the_weights_of_an_accept_header_count() -> None:
    async with running(Service()) as server:
        accept = "application/openmetrics-text; version=1.0.0; q=0.1, text/plain; q=0.9"
        assert (await get(server.port, "/metrics", accept=accept)).headers["content-type"] == TEXT
        refused = "application/openmetrics-text; q=0, */*"
        assert (await get(server.port, "/metrics", accept=refused)).headers["content-type"] == TEXT


@pytest.mark.parametrize(
    ("accept", "best"),
    [
        ("", ""),
        ("text/html", ""),
        ("text/plain;q=0.5, */*;q=0.4", "text/plain;q=0.5"),
        ("*/*, text/plain", "*/*"),
        ("text/plain;q=nonsense, */*;q=0.1", "*/*;q=0.1"),
    ],
)
def test_preferred(accept: str, best: str) -> None:
    assert preferred(accept) == best


@async_test
async def test_a_taken_port_is_an_error_that_names_it() -> None:
    async with running(Service()) as server:
        second = serve_health(
            "127.0.0.1", server.port, ready=lambda: Readiness(True), registry=CollectorRegistry()
        )
        with pytest.raises(
            BindError, match=rf"cannot listen on 127\.0\.0\.1:{server.port}: address already in use"
        ):
            await second.start()
        # The first is none the worse, and the second may be stopped as it is.
        await second.stop()
        assert (await get(server.port, "/healthz")).status == 200


@async_test
async def test_stop_frees_the_port_at_once_whatever_clients_hold_open() -> None:
    service = Service()
    server = serve_health("127.0.0.1", 0, ready=lambda: service.readiness, registry=service.registry)
    with pytest.raises(RuntimeError, match="not been started"):
        _ = server.port
    await server.start()
    _, idle = await asyncio.open_connection("127.0.0.1", server.port)
    await asyncio.wait_for(server.stop(), 10)
    await server.stop()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", server.port))
    idle.close()


@async_test
async def test_signals_are_left_alone() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    async with running(Service()) as server:
        assert (await get(server.port, "/healthz")).status == 200
        assert {number: signal.getsignal(number) for number in before} == before


@async_test
async def test_requests_are_not_logged(caplog: Any) -> None:
    caplog.set_level("DEBUG")
    async with running(Service()) as server:
        await get(server.port, "/metrics")
    assert "/metrics" not in caplog.text


class Pages:
    """A metrics page of the service's own making."""

    def __init__(self) -> None:
        self.broken = False

    async def __call__(self, *, openmetrics: bool) -> bytes:
        await asyncio.sleep(0)
        if self.broken:
            raise RuntimeError("page lost")
        return b"# EOF\n" if openmetrics else b"up 1\n"


@async_test
async def test_a_page_of_the_services_own_making_is_negotiated_too(caplog: pytest.LogCaptureFixture) -> None:
    page = Pages()
    accept = "text/plain;q=0.2, application/openmetrics-text; version=1.0.0; q=0.9"
    refused = "application/openmetrics-text; q=0, */*"
    server = serve_health("127.0.0.1", 0, ready=lambda: Readiness(True), page=page)
    await server.start()
    try:
        plain = await get(server.port, "/metrics")
        other = await get(server.port, "/metrics", accept=accept)
        third = await get(server.port, "/metrics", accept=refused)
        posted = await get(server.port, "/metrics", method="POST")
        page.broken = True
        broken = await get(server.port, "/metrics")
        alive = await get(server.port, "/healthz")
    finally:
        await server.stop()
    assert (plain.status, plain.headers["content-type"], plain.body) == (200, TEXT, "up 1\n")
    assert other.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert other.body == "# EOF\n"
    assert third.headers["content-type"] == TEXT
    assert (posted.status, broken.status, alive.status) == (405, 500, 200)
    assert "page lost" in caplog.text


def test_metrics_have_one_source() -> None:
    for sources in ({}, {"registry": CollectorRegistry(), "page": Pages()}):
        with pytest.raises(ValueError, match="one of them"):
            serve_health("127.0.0.1", 0, ready=lambda: Readiness(True), **sources)  # type: ignore[arg-type]


@async_test
async def test_a_socket_that_listens_already_is_taken_over() -> None:
    ours = listening_socket("127.0.0.1", 0)
    port = ours.getsockname()[1]
    handed = ours.dup()
    handed.setblocking(True)
    server = serve_health("nowhere.invalid", 1, ready=lambda: Readiness(True), page=Pages(), sock=handed)
    await server.start()
    first = server.port, (await get(port, "/healthz")).status
    await server.stop()
    assert first == (port, 200)
    # The one who handed it down still listens: a client of the time between waits, and is not refused.
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    again = serve_health("nowhere.invalid", 1, ready=lambda: Readiness(True), page=Pages(), sock=ours)
    await again.start()
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    await writer.wait_closed()
    await again.stop()
    assert answer.startswith(b"HTTP/1.1 200")
