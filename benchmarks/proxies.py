"""The gateway and its peer as processes of their own, in front of the same workers."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from benchmarks import processes
from reactant_core.testing import eventually_sync

READY_TIMEOUT_SECONDS = 30

# What an operator sets for large gRPC bodies: they stay in memory, and a whole one fits the window.
# Upstream connections are kept, and no connection is closed for its count of requests.
NGINX = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{
    worker_connections 4096;
}}
http {{
    access_log off;
    {buffers}
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream workers {{
        {servers}
        keepalive 256;
        keepalive_requests 100000000;
        keepalive_timeout 1h;
    }}
    server {{
        listen 127.0.0.1:{port} http2;
        keepalive_requests 100000000;
        keepalive_timeout 1h;
        http2_max_concurrent_streams 1024;
        client_max_body_size 0;
        location / {{
            grpc_pass grpc://workers;
            grpc_read_timeout 1h;
            grpc_send_timeout 1h;
        }}
    }}
}}
"""
NGINX_BUFFERS = (
    "client_body_buffer_size 256k;",
    "http2_body_preread_size 256k;",
    "http2_recv_buffer_size 256k;",
    "grpc_buffer_size 16k;",
)


@final
@dataclass(frozen=True, slots=True)
class Proxy:
    """One that serves on loopback.

    Attributes:
        pids: the processes whose CPU time it costs.
        answered: requests answered with grpc-status 0 so far by its own count; None where it has none.
    """

    name: str
    port: int
    pids: Sequence[int]
    answered: Callable[[], int] | None

    def cpu_seconds(self) -> float:
        """User and system time so far, from /proc."""
        return sum(processes.cpu_seconds(pid) for pid in self.pids)


def nginx_missing() -> bool:
    """Whether nginx is not installed."""
    return shutil.which("nginx") is None


@contextmanager
def gateway(
    workers: Sequence[int], package: Path | None = None, launcher: Sequence[str] = ()
) -> Iterator[Proxy]:
    """A gateway with its defaults: the checkout's, or the compiled one in the folder `package`.

    `launcher` goes before the command (a profiler).
    """
    port, http_port = processes.free_port(), processes.free_port()
    environment = os.environ | {
        "REACTANT_GATEWAY_WORKERS": ",".join(f"127.0.0.1:{worker}" for worker in workers),
        "REACTANT_GATEWAY_LISTEN_HOST": "127.0.0.1",
        "REACTANT_GATEWAY_LISTEN_PORT": str(port),
        "REACTANT_GATEWAY_LISTEN_METRICS_PORT": str(http_port),
        "REACTANT_GATEWAY_LOGGING_LEVEL": "warning",
        "REACTANT_GATEWAY_LAMEDUCK_SECONDS": "0",
    }
    if package is not None:
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{package}{os.pathsep}{before}" if before else str(package)
    with processes.started(
        "the gateway",
        [*launcher, *([] if launcher else [sys.executable]), "-m", "reactant_gateway"],
        ready=lambda: processes.answers_200(f"http://127.0.0.1:{http_port}/readyz"),
        timeout_seconds=READY_TIMEOUT_SECONDS,
        environment=environment,
    ) as process:
        yield Proxy(
            "gateway",
            port,
            [process.pid],
            lambda: int(processes.metric(http_port, "gateway_requests_total", code="OK")),
        )


@contextmanager
def nginx(workers: Sequence[int], folder: Path, buffers: Sequence[str] = NGINX_BUFFERS) -> Iterator[Proxy]:
    """nginx with one worker process; its files lie in `folder`."""
    port = processes.free_port()
    folder.mkdir(exist_ok=True)
    configuration = folder / "nginx.conf"
    configuration.write_text(
        NGINX.format(
            # As root it would change to a user who may not write here.
            user="user root;" if os.geteuid() == 0 else "",
            folder=folder,
            port=port,
            servers=" ".join(f"server 127.0.0.1:{worker};" for worker in workers),
            buffers=" ".join(buffers),
        )
    )
    log = folder / "error.log"
    with processes.started(
        "nginx",
        ["nginx", "-e", str(log), "-p", str(folder), "-c", str(configuration)],
        ready=lambda: processes.listens(port),
        timeout_seconds=READY_TIMEOUT_SECONDS,
    ) as process:
        # The master listens before its worker, which does the work, is there.
        eventually_sync(lambda: processes.children(process.pid), what="nginx has a worker")
        yield Proxy("nginx", port, [process.pid, *processes.children(process.pid)], None)
    if log.read_text():
        raise RuntimeError(f"nginx logged: {log.read_text()[:2000]}")
