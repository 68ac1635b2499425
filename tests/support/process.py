"""A real worker process on ports of its own, and what is known of it from outside."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from reactant_core.testing import eventually_sync, free_port

HOST = "127.0.0.1"
READY_SECONDS = 90.0
STOP_SECONDS = 20.0
_OURS = ("INFERENCE_SERVER_", "REACTANT_", "FIXTURE_", "JAX_", "XLA_")


@final
@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, content type and body of one GET."""

    status: int
    content_type: str
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def http_get(port: int, path: str, *, timeout: float = 10.0, accept: str | None = None) -> HttpAnswer:
    """GETs `path`; OSError when nothing listens."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    try:
        connection.request("GET", path, headers={} if accept is None else {"Accept": accept})
        answer = connection.getresponse()
        return HttpAnswer(answer.status, answer.headers.get("content-type", ""), answer.read())
    finally:
        connection.close()


@final
class ServerProcess:
    """A server started by `command`; use as a context manager.

    Leaving the block sends SIGTERM and demands exit code 0, unless the test has signalled it itself.

    Args:
        command: arguments of the interpreter, such as `["-m", "reactant_worker"]`.
        environ: variables on top of a clean environment.
        log: file for everything it writes.
        port: its gRPC port.
        http_port: its HTTP port.
    """

    def __init__(
        self, command: Iterable[str], environ: Mapping[str, str], *, log: Path, port: int, http_port: int
    ) -> None:
        self.command = (sys.executable, *command)
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)} | dict(environ)
        self.log = log
        self.replicas = 1
        self.port = port
        self.http_port = http_port
        self._process: subprocess.Popen[bytes] | None = None
        self._signalled = False

    @property
    def address(self) -> str:
        """`host:port` of its gRPC port."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def _popen(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def __enter__(self) -> ServerProcess:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is None and self.running and not self._signalled:
                code = self.stop()
                assert code == 0, f"exit code {code}\n{self.tail()}"
        finally:
            self._popen.kill()
            self._popen.wait()

    @property
    def running(self) -> bool:
        """It has not ended."""
        return self._popen.poll() is None

    def get(self, path: str, **options: Any) -> HttpAnswer:
        """GETs from its HTTP port."""
        return http_get(self.http_port, path, **options)

    def wait_listening(self, seconds: float = READY_SECONDS) -> None:
        """Until its HTTP port answers."""
        eventually_sync(lambda: self._readyz() is not None, seconds, what="/readyz answers")

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Until `/readyz` gives 200; fails at once, with the log, when the process ends."""
        eventually_sync(lambda: self._readyz() == 200, seconds, what="/readyz is 200")

    def _readyz(self) -> int | None:
        if not self.running:
            raise RuntimeError(f"{self.command} ended with {self._popen.returncode}\n{self.tail()}")
        try:
            return self.get("/readyz").status
        except OSError:
            return None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._signalled = True
        self._popen.send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Its exit code; fails with the log when it does not end in time."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s\n{self.tail()}") from None

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def resident_bytes(self) -> int:
        """Its resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def threads(self) -> int:
        """How many threads it has."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def events(self) -> list[dict[str, Any]]:
        """Its log so far: one mapping per JSON line; lines of another kind as {"text": line}."""
        found = []
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            found.append(event if isinstance(event, dict) else {"text": line})
        return found

    def tail(self, lines: int = 30, width: int = 400) -> str:
        """The end of its log, for failure messages."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(line[:width] for line in text.splitlines()[-lines:])


def worker_process(
    models: Iterable[Path],
    *,
    log: Path,
    cache: Path,
    include: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> ServerProcess:
    """A worker, not yet started.

    Args:
        models: model directories.
        log: its log file.
        cache: its `cache_dir`.
        include: models to serve; all when empty.
        environ: further variables.
    """
    port, http_port = free_port(), free_port()
    settings = {
        "INFERENCE_SERVER_MODEL_DIRS": ":".join(map(str, models)),
        "INFERENCE_SERVER_MODELS_INCLUDE": ":".join(include),
        "INFERENCE_SERVER_CACHE_DIR": str(cache),
        "INFERENCE_SERVER_ENDPOINTS_HOST": HOST,
        "INFERENCE_SERVER_ENDPOINTS_PORT": str(port),
        "INFERENCE_SERVER_ENDPOINTS_METRICS_PORT": str(http_port),
        "INFERENCE_SERVER_RUNTIME_BACKEND": "cpu",
        "INFERENCE_SERVER_LAMEDUCK_SECONDS": "0",
        "REACTANT_LOG_FORMAT": "json",
        **(environ or {}),
    }
    return ServerProcess(["-m", "reactant_worker"], settings, log=log, port=port, http_port=http_port)
