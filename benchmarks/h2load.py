"""Closed-loop gRPC load by h2load (nghttp2)."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import final

from google.protobuf.message import Message


@final
@dataclass(frozen=True, slots=True)
class Load:
    """One run: latencies in seconds, over all requests."""

    requests_per_second: float
    failed: int
    p50: float
    p99: float


def available() -> bool:
    """Whether the tool is installed."""
    return shutil.which("h2load") is not None


def write_body(path: Path, message: Message) -> Path:
    """A gRPC message with its five-byte prefix, as a request body."""
    data = message.SerializeToString()
    path.write_bytes(b"\0" + struct.pack(">I", len(data)) + data)
    return path


def run(port: int, method: str, body: Path, *, requests: int, concurrency: int, log: Path) -> Load:
    """Sends `requests` unary calls, at most `concurrency` at a time over up to four connections.

    h2load looks at HTTP statuses only: check grpc-status by the server's own counters.
    """
    connections = max(n for n in (1, 2, 4) if concurrency % n == 0)
    log.unlink(missing_ok=True)
    command = [
        "h2load", "-n", str(requests), "-c", str(connections), "-m", str(concurrency // connections),
        "-d", str(body), "-H", "te: trailers", "-H", "content-type: application/grpc",
        f"--log-file={log}", f"http://127.0.0.1:{port}/{method}",
    ]  # fmt: skip
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rate = _find(r"finished in \S+, ([\d.]+) req/s", output)
    succeeded = int(_find(r"(\d+) succeeded", output))
    latencies = sorted(int(line.split("\t")[2]) * 1e-6 for line in log.read_text().splitlines())
    return Load(float(rate), requests - succeeded, _quantile(latencies, 0.50), _quantile(latencies, 0.99))


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")


def _find(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"h2load printed nothing like {pattern!r}:\n{text}")
    return match[1]
