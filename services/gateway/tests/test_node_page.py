"""The page of a node, its workers answering well, badly and not at all."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import subprocess
import threading
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict

from reactant_core.http_get import http_get
from reactant_core.testing import async_test, eventually, free_port
from reactant_core.web import Readiness, WebServer, serve_health
from reactant_gateway.families import Page
from reactant_gateway.merge import Merged, merge_pages
from reactant_gateway.metrics import GatewayMetrics, Watched
from reactant_gateway.node_page import NodePage
from reactant_gateway.scrape import Target, fetch, read

LABELS = {"worker": "worker0", "gpu": "0"}
OK = b"HTTP/1.1 200 OK\r\n"


def worker_registry(index: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    requests = Counter("worker_requests", "Requests.", ["model", "code"], registry=registry)
    latency = Histogram("worker_request_latency_seconds", "Latency.", ["model"], registry=registry)
    for model in ("echo", 'a "b"\\\n'):
        requests.labels(model, "OK").inc(index + 1)
        latency.labels(model).observe(0.1, {"trace": str(index)})
    ProcessCollector(registry=registry)
    return registry


@asynccontextmanager
async def listening(
    answer: Callable[[asyncio.StreamWriter], None], *, hang_up: bool = True
) -> AsyncIterator[str]:
    """A worker whose metrics port says what `answer` writes."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        answer(writer)
        if not hang_up:
            await ended.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        ended.set()
        server.close()
        await server.wait_closed()


def saying(*parts: bytes) -> Callable[[asyncio.StreamWriter], None]:
    return lambda writer: writer.writelines(parts)


class Node:
    """A gateway's metrics with the targets given."""

    def __init__(self, seconds: float = 5.0) -> None:
        self.registry = CollectorRegistry()
        self.metrics = GatewayMetrics(self.registry)
        self.metrics.keep(models=["echo"], workers=["worker0"])
        self.metrics.finished("echo", 0, "worker0", 0.1, 0.1)
        self.targets: list[Target] = []
        self.page = NodePage(self.registry, self.metrics, lambda: self.targets, seconds=seconds)

    def add(self, address: str) -> str:
        name = f"worker{len(self.targets)}"
        gpu = str(len(self.targets))
        self.targets.append(Target(name, address, {"worker": name, "gpu": gpu}))
        return name

    async def text(self) -> str:
        return (await self.page(openmetrics=False)).decode()


@asynccontextmanager
async def workers(node: Node, count: int) -> AsyncIterator[list[WebServer]]:
    servers = []
    for index in range(count):
        server = serve_health("127.0.0.1", 0, ready=lambda: Readiness(True), registry=worker_registry(index))
        await server.start()
        node.add(f"127.0.0.1:{server.port}")
        servers.append(server)
    try:
        yield servers
    finally:
        for server in servers:
            await server.stop()


@async_test
async def test_the_workers_pages_and_the_gateways_own_are_one() -> None:
    node = Node()
    async with workers(node, 2):
        page = await node.text()
        openmetrics = (await node.page(openmetrics=True)).decode()

    assert 'worker_requests_total{code="OK",gpu="1",model="echo",worker="worker1"} 2.0\n' in page
    assert 'gateway_requests_total{code="OK",model="echo"} 1.0\n' in page
    assert 'gateway_worker_metrics_up{worker="worker1"} 1.0\n' in page
    assert "\nprocess_open_fds " in page
    assert '\nprocess_open_fds{gpu="0",worker="worker0"} ' in page
    families = {family.name: family for family in strict(openmetrics)}  # type: ignore[no-untyped-call]
    assert families["worker_requests"].type == "counter"
    exemplars = [s.exemplar for s in families["worker_request_latency_seconds"].samples if s.exemplar]
    assert len(exemplars) == 4


GARBAGE = {
    "cut off": saying(OK, b"Content-Length: 100\r\n\r\nworker_models_loaded 1\n"),
    "cut off in a line": saying(OK, b"\r\nworker_models_loaded 1\nworker_models"),
    "another status": saying(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\na 1\n"),
    "no page": saying(OK, b"\r\n<html></html>\n"),
    "repeated headers": saying(OK, b"\r\n# TYPE a gauge\na 1\n# TYPE a gauge\n"),
    "openmetrics without its end": saying(OK, b"Content-Type: application/openmetrics-text\r\n\r\na 1\n"),
    "not HTTP": saying(b"hello\n"),
    "nothing": saying(b""),
}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)
@async_test
async def test_a_bad_page_costs_only_itself(
    answer: Callable[[asyncio.StreamWriter], None], caplog: pytest.LogCaptureFixture
) -> None:
    node = Node()
    async with workers(node, 1), listening(answer) as address:
        bad = node.add(address)
        page = await node.text()
        await node.text()

    assert f'worker="{bad}"' not in page.replace(f'gateway_worker_metrics_up{{worker="{bad}"}} 0.0', "")
    assert 'gateway_worker_metrics_up{worker="worker0"} 1.0\n' in page
    assert f'gateway_worker_metrics_up{{worker="{bad}"}} 0.0\n' in page
    assert 'worker_requests_total{code="OK",gpu="0",model="echo",worker="worker0"} 1.0\n' in page
    assert caplog.text.count("no metrics page of a worker") == 1


@async_test
async def test_a_worker_that_comes_back_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    node = Node()
    node.add(f"127.0.0.1:{free_port()}")
    await node.text()
    async with listening(saying(OK, b"\r\na 1\n")) as address:
        node.targets = []
        node.add(address)
        await node.text()
        await node.text()
    assert caplog.text.count("no metrics page of a worker") == 1
    assert caplog.text.count("is back") == 1


@async_test
async def test_a_type_conflict_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    gauge, counter = saying(OK, b"\r\n# TYPE a gauge\na 1\n"), saying(OK, b"\r\n# TYPE a counter\na 1\n")
    async with listening(gauge) as first, listening(counter) as second:
        node.add(first)
        node.add(second)
        for _ in range(3):
            page = await node.text()
    assert 'a{gpu="0",worker="worker0"} 1\n' in page
    assert 'a{gpu="1"' not in page
    assert caplog.text.count("worker1: a is a counter, elsewhere a gauge") == 1


@async_test
async def test_a_silent_and_an_endless_page_are_given_up_on() -> None:
    def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\n" + 100_000 * b"a 1\n")

    async with (
        listening(saying(), hang_up=False) as silent,
        listening(endless, hang_up=False) as long,
        listening(saying(OK, b"\r\na 1\n")) as good,
    ):
        targets = [Target(f"w{i}", address, LABELS) for i, address in enumerate((silent, long, good))]
        found = await read(await fetch(targets, seconds=0.1, limit_bytes=100_000))

    assert [one.page is not None for one in found] == [False, False, True]
    assert found[0].reason == "no page within 0.1 s"
    assert found[1].reason == "the answer is too large"


@async_test
async def test_all_pages_are_asked_for_at_once() -> None:
    asked = asyncio.Semaphore(0)
    everyone = asyncio.Event()
    answer = saying(OK, b"\r\na 1\n")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.release()
        await everyone.wait()
        answer(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    scraping = asyncio.create_task(fetch([Target(f"w{i}", address, LABELS) for i in range(8)], seconds=20))
    for _ in range(8):
        await asyncio.wait_for(asked.acquire(), 10)
    everyone.set()
    assert all(one.body for one in await scraping)
    server.close()
    await server.wait_closed()


@async_test
async def test_who_comes_while_a_page_is_made_gets_that_page() -> None:
    asked = 0
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        await go.wait()
        saying(OK, b"\r\na 1\n")(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    node = Node()
    node.add(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    gone, *others = [asyncio.create_task(node.page(openmetrics=False)) for _ in range(5)]
    other_format = asyncio.create_task(node.page(openmetrics=True))
    await eventually(lambda: asked == 2, what="a page of each format is being made")
    gone.cancel()
    go.set()
    pages = await asyncio.gather(*others)
    assert all(page is pages[0] for page in pages)
    assert b"# EOF" not in pages[0]
    assert (await other_format).endswith(b"# EOF\n")
    assert gone.cancelled()

    assert await node.page(openmetrics=False) is not pages[0]
    assert asked == 3
    server.close()
    await server.wait_closed()


@async_test
async def test_a_page_that_cannot_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    with monkeypatch.context() as broken:
        broken.setattr(node.metrics, "pages_came", lambda _: 1 / 0)
        failed = await asyncio.gather(*(node.text() for _ in range(2)), return_exceptions=True)
    assert [type(error) for error in failed] == [ZeroDivisionError] * 2
    assert gc.isenabled()
    assert "gateway_routing_table_size" in await node.text()


@async_test
async def test_a_page_is_put_together_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def noted(pages: Iterable[Page]) -> Merged:
        threads.append((threading.current_thread(), gc.isenabled()))
        return merge_pages(pages)

    monkeypatch.setattr("reactant_gateway.node_page.merge_pages", noted)
    await Node().text()
    ((thread, collecting),) = threads
    assert thread is not threading.main_thread()
    assert not collecting
    assert gc.isenabled()


@async_test
async def test_without_workers_the_page_is_the_gateways() -> None:
    page = await Node().text()
    assert "gateway_routing_table_size 0.0\n" in page


@pytest.mark.slow
@async_test
async def test_promtool_accepts_the_page_of_a_node() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    node = Node()
    async with workers(node, 4):
        page = await node.page(openmetrics=False)
    checked = await asyncio.to_thread(
        subprocess.run, [promtool, "check", "metrics"], input=page, capture_output=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


class Prometheus:
    """A server that scrapes one address."""

    def __init__(self, port: int) -> None:
        self._address = f"127.0.0.1:{port}"

    async def get(self, path: str, **query: str) -> object:
        target = f"/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            answer = await asyncio.wait_for(http_get(self._address, target, limit_bytes=1 << 24), 10)
        except OSError as error:
            raise AssertionError("Prometheus does not answer yet") from error
        assert answer.status == 200, answer.body
        return json.loads(answer.body)["data"]

    async def query(self, expression: str) -> dict[str, float]:
        """Value by worker."""
        data = await self.get("query", query=expression)
        assert isinstance(data, dict)
        return {one["metric"].get("worker", ""): float(one["value"][1]) for one in data["result"]}


@asynccontextmanager
async def prometheus(program: str, target: int, folder: Path) -> AsyncIterator[Prometheus]:
    config = folder / "prometheus.yml"
    static = {"targets": [f"127.0.0.1:{target}"]}
    job = {
        "job_name": "node",
        "scrape_interval": "500ms",
        "scrape_timeout": "400ms",
        "static_configs": [static],
    }
    config.write_text(json.dumps({"scrape_configs": [job]}))
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.slow
@async_test
async def test_prometheus_scrapes_a_node(tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    node = Node()
    node.metrics.watch(Watched(ready=lambda: {f"worker{index}": True for index in range(4)}))
    async with workers(node, 4):
        gateway = serve_health("127.0.0.1", 0, ready=lambda: Readiness(True), page=node.page)
        await gateway.start()
        try:
            async with prometheus(program, gateway.port, tmp_path) as server:
                await eventually(lambda: server.query('sum(worker_requests_total{model="echo"})'), timeout=30)
                total = await server.query('sum(worker_requests_total{model="echo"})')
                each = await server.query('worker_requests_total{model="a \\"b\\"\\\\\\n"}')
                rate = await server.query(
                    "histogram_quantile(0.5, sum by (le) (worker_request_latency_seconds_bucket))"
                )
                up = await server.query("up")
                pages = await server.query("gateway_worker_metrics_up")
                memory = await server.query("process_resident_memory_bytes")
                targets = await server.get("targets")
        finally:
            await gateway.stop()

    assert total == {"": 10}
    assert each == {f"worker{index}": index + 1 for index in range(4)}
    assert 0 < rate[""] <= 0.1
    assert up == {"": 1}
    assert set(pages.values()) == {1}
    assert memory.keys() == {"", "worker0", "worker1", "worker2", "worker3"}
    assert isinstance(targets, dict)
    (active,) = targets["activeTargets"]
    assert (active["health"], active["lastError"]) == ("up", "")
    log = (tmp_path / "log").read_text()
    assert "uplicate" not in log
    assert "rror" not in log
