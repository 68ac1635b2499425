"""The page of a node of four workers, read by Prometheus itself (cases M1, M3)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
from tests.support.client import Client
from tests.support.messages import echo
from tests.support.metrics import parse
from tests.support.node_process import NodeProcess
from tests.support.node_prometheus import prometheus

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow

WORKERS = {f"worker{index}" for index in range(4)}
TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def ask_each(client: Client) -> None:
    for _ in range(8):
        client.infer(echo()).ok()


def test_m1_promtool_accepts_it(node: NodeProcess, client: Client) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    ask_each(client)
    page = node.get("/metrics").body
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=30)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not checked.stdout + checked.stderr
    found = parse(page)
    for name in ("worker_requests_total", "worker_info", "process_resident_memory_bytes"):
        assert found.labels("worker", name) == WORKERS
    assert found.value("gateway_worker_metrics_up") == found.value("gateway_worker_ready") == 4


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, TEXT),
        ("*/*", TEXT),
        ("text/plain", TEXT),
        ("application/openmetrics-text; version=1.0.0", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPENMETRICS),
    ],
)
def test_m3_the_format_is_the_one_asked_for(node: NodeProcess, accept: str | None, expected: str) -> None:
    answer = node.get("/metrics", accept=accept)
    assert answer.status == 200
    assert answer.content_type == expected
    text = answer.body.decode()
    if expected == TEXT:
        assert parse(answer.body).labels("worker", "worker_info") == WORKERS
        assert "# EOF" not in text
    else:
        assert text.count("# EOF") == 1
        assert text.endswith("\n# EOF\n")
        families = {family.name for family in strict(text)}  # type: ignore[no-untyped-call]
        assert {"gateway_worker_ready", "worker_requests"} <= families


def test_prometheus_scrapes_it(node: NodeProcess, client: Client, tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    ask_each(client)
    with prometheus(program, node.ports.http, tmp_path) as server:
        eventually_sync(lambda: server.query("up") == {"": 1}, 30, what="a scrape has succeeded")
        served = server.query('sum by (worker) (worker_requests_total{model="echo",code="OK"})')
        seen = server.query('sum(gateway_requests_total{model="echo",code="OK"})')
        latency = server.query(
            'histogram_quantile(0.5, sum by (le) (gateway_request_latency_seconds_bucket{model="echo"}))'
        )
        (target,) = server.get("targets")["activeTargets"]
    assert served.keys() == WORKERS
    assert all(count >= 2 for count in served.values())
    assert seen[""] >= 8
    assert 0 < latency[""] < 10
    assert (target["health"], target["lastError"]) == ("up", "")
    assert "uplicate" not in (tmp_path / "log").read_text()
