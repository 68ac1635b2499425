"""A worker of its own for a measurement, and what the kernel and its metrics say of it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

READY_TIMEOUT_SECONDS = 300
_TICKS = os.sysconf("SC_CLK_TCK")


@final
@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker that serves on loopback."""

    pid: int
    grpc_port: int
    http_port: int

    def cpu_seconds(self) -> float:
        """User and system time of the process so far, from /proc."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of `name` that carry `labels`; 0 without any."""
        total = 0.0
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics") as page:
            for line in page.read().decode().splitlines():
                match = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
                if match and all(f'{k}="{v}"' in (match[1] or "") for k, v in labels.items()):
                    total += float(match[2])
        return total


@contextmanager
def worker(models: Path, cache: Path, transport: str, extra: Mapping[str, str]) -> Iterator[WorkerProcess]:
    """Starts a worker, yields it once `/readyz` is 200, stops it and checks that it exits with 0."""
    grpc_port, http_port = free_port(), free_port()
    environment = os.environ | {
        "INFERENCE_SERVER_MODEL_DIRS": str(models),
        "INFERENCE_SERVER_CACHE_DIR": str(cache),
        "INFERENCE_SERVER_ENDPOINTS_HOST": "127.0.0.1",
        "INFERENCE_SERVER_ENDPOINTS_PORT": str(grpc_port),
        "INFERENCE_SERVER_ENDPOINTS_METRICS_PORT": str(http_port),
        "INFERENCE_SERVER_ENDPOINTS_TRANSPORT": transport,
        "INFERENCE_SERVER_LAMEDUCK_SECONDS": "0",
        "INFERENCE_SERVER_LOG_LEVEL": "warning",
        **extra,
    }
    process = subprocess.Popen([sys.executable, "-m", "reactant_worker"], env=environment)
    try:
        _wait_ready(process, http_port)
        yield WorkerProcess(process.pid, grpc_port, http_port)
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        if code:
            raise RuntimeError(f"the worker exited with {code}")
    finally:
        process.kill()
        process.wait()


def _wait_ready(process: subprocess.Popen[bytes], port: int) -> None:
    limit = time.monotonic() + READY_TIMEOUT_SECONDS
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise RuntimeError(f"the worker exited with {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise RuntimeError(f"the worker was not ready within {READY_TIMEOUT_SECONDS} s")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
