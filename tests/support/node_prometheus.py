"""A real Prometheus that scrapes one address."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tests.support.process import HOST, http_get

from reactant_core.testing import eventually_sync, free_range


@final
@dataclass(frozen=True, slots=True)
class Prometheus:
    """Asked through its HTTP API.

    Attributes:
        port: where it listens.
        log: what it writes.
    """

    port: int
    log: Path

    def get(self, path: str, **query: str) -> Any:
        """`data` of an answer of the API."""
        answer = http_get(self.port, f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
        assert answer.status == 200, answer.body
        return answer.json()["data"]

    def query(self, expression: str) -> dict[str, float]:
        """Value now, by worker."""
        result = self.get("query", query=expression)["result"]
        return {one["metric"].get("worker", ""): float(one["value"][1]) for one in result}

    def answers(self) -> bool:
        """It has started."""
        try:
            return http_get(self.port, "/-/ready").status == 200
        except OSError:
            return False


@contextmanager
def prometheus(program: str, target: int, folder: Path) -> Iterator[Prometheus]:
    """`program` as it scrapes port `target` twice a second."""
    job = {
        "job_name": "node",
        "scrape_interval": "500ms",
        "scrape_timeout": "500ms",
        "static_configs": [{"targets": [f"{HOST}:{target}"]}],
    }
    config, log, port = folder / "prometheus.yml", folder / "log", free_range(1)
    config.write_text(json.dumps({"scrape_configs": [job]}))
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={HOST}:{port}",
    ]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            server = Prometheus(port, log)
            eventually_sync(server.answers, 30, what="Prometheus answers")
            yield server
        finally:
            process.terminate()
