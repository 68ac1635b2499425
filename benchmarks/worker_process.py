"""A worker of its own for a measurement, and what the kernel and its metrics say of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from benchmarks import processes

READY_TIMEOUT_SECONDS = 300


@final
@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker that serves on loopback."""

    pid: int
    grpc_port: int
    http_port: int

    def cpu_seconds(self) -> float:
        """User and system time of the process so far, from /proc."""
        return processes.cpu_seconds(self.pid)

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of `name` that carry `labels`; 0 without any."""
        return processes.metric(self.http_port, name, **labels)


@contextmanager
def worker(models: Path, cache: Path, transport: str, extra: Mapping[str, str]) -> Iterator[WorkerProcess]:
    """Starts a worker, yields it once `/readyz` is 200, stops it and checks that it exits with 0."""
    grpc_port, http_port = processes.free_port(), processes.free_port()
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
    with processes.started(
        "the worker",
        [sys.executable, "-m", "reactant_worker"],
        ready=lambda: processes.answers_200(f"http://127.0.0.1:{http_port}/readyz"),
        timeout_seconds=READY_TIMEOUT_SECONDS,
        environment=environment,
    ) as process:
        yield WorkerProcess(process.pid, grpc_port, http_port)
