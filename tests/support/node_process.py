"""A real node: a supervisor on ports and in a run directory of its own, and what it keeps running."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tests.support import metrics
from tests.support.metrics import Page
from tests.support.process import HOST, READY_SECONDS, HttpAnswer, ServerProcess

from reactant_core.rpc import create_sync_channel
from reactant_core.testing import eventually_sync, free_range
from reactant_proto import supervisor_pb2 as spb
from reactant_proto import supervisor_pb2_grpc

STOP_BUDGET_SECONDS = 27.0
"""What a stop may take, by the specification."""

MakeNode = Callable[..., "NodeProcess"]
"""As `node_process` with what all nodes of a folder of tests have in common."""

_MOST_WORKERS = 8


@final
@dataclass(frozen=True, slots=True)
class Ports:
    """Where a node listens: `base` and `metrics_base` are those of the first worker."""

    grpc: int
    http: int
    base: int
    metrics_base: int

    @property
    def environ(self) -> dict[str, str]:
        """What tells a supervisor."""
        return {
            "REACTANT_PUBLIC_PORT": str(self.grpc),
            "REACTANT_PUBLIC_METRICS_PORT": str(self.http),
            "REACTANT_BASE_PORT": str(self.base),
            "REACTANT_METRICS_BASE_PORT": str(self.metrics_base),
        }


def free_ports() -> Ports:
    """Ports that nothing listens on."""
    first = free_range(2 * _MOST_WORKERS + 2)
    return Ports(first, first + 1, first + 2, first + 2 + _MOST_WORKERS)


@final
class NodeProcess:
    """A supervisor with its children; use as a context manager, as a `ServerProcess`.

    Args:
        ports: where it listens.
        run_dir: its run directory, which the node makes and removes.
        log: file for everything it writes.
        environ: its settings beside those.
    """

    def __init__(self, ports: Ports, run_dir: Path, log: Path, environ: Mapping[str, str]) -> None:
        self.ports = ports
        self.run_dir = run_dir
        settings = {
            **ports.environ,
            "REACTANT_RUN_DIR": str(run_dir),
            "REACTANT_LOG_FORMAT": "json",
            "NOTIFY_SOCKET": "",
            **environ,
        }
        command = ["-m", "reactant_supervisor"]
        self.server = ServerProcess(command, settings, log=log, port=ports.grpc, http_port=ports.http)

    def __enter__(self) -> NodeProcess:
        self.server.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.server.__exit__(kind, error, trace)

    @property
    def address(self) -> str:
        """Of its gRPC port."""
        return self.server.address

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self.server.pid

    # --- start and end ---------------------------------------------------------------------------------

    def wait_complete(self, seconds: float = READY_SECONDS) -> None:
        """Until every child is ready and, with a gateway, every worker gets requests."""
        self.wait_ready(seconds)
        eventually_sync(self._complete, seconds, what="every worker of the node gets requests")

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Until the node serves; fails at once, with its log, when it ends."""
        eventually_sync(self._serving, seconds, what="the node is ready")

    def _serving(self) -> bool:
        if not self.server.running:
            raise RuntimeError(f"the node ended with {self.server.wait()}\n{self.server.tail()}")
        return self.supervisor_answers() and self.status().ready

    def _complete(self) -> bool:
        children = self.status().children
        return all(child.state == "running" and child.progress == "ready" for child in children) and (
            "gateway" not in [child.name for child in children]
            or set(self.worker_states().values()) == {"ready"}
        )

    def stop(self, seconds: float = STOP_BUDGET_SECONDS) -> int:
        """SIGTERM, and the exit code of the node."""
        return self.server.stop(seconds)

    def die(self) -> None:
        """SIGKILL to the supervisor alone, and waits for its end."""
        self.server.signal(signal.SIGKILL)
        self.server.wait()

    def hang_up(self) -> None:
        """SIGHUP to the supervisor."""
        os.kill(self.pid, signal.SIGHUP)

    # --- processes -------------------------------------------------------------------------------------

    def pids(self) -> dict[str, int]:
        """The process of each child that runs now, by name."""
        return {child.name: child.pid for child in self.status().children if child.pid}

    def kill(self, name: str) -> int:
        """SIGKILL to a child; its process id."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def processes(self) -> dict[int, str]:
        """Every process that has this node's run directory in its environment: the command by process id."""
        return {
            pid: _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))
            if environ_of(pid).get("REACTANT_RUN_DIR") == str(self.run_dir)
        }

    # --- SupervisorService -----------------------------------------------------------------------------

    def supervisor_answers(self) -> bool:
        """SupervisorService has its socket."""
        return (self.run_dir / "supervisor.sock").exists()

    def status(self) -> spb.NodeStatusResponse:
        """SupervisorService.Status."""
        answer: spb.NodeStatusResponse = self._ask(
            lambda stub: stub.Status(spb.NodeStatusRequest(), timeout=10, wait_for_ready=True)
        )
        return answer

    def restart(self, name: str) -> None:
        """SupervisorService.RestartChild."""
        self._ask(lambda stub: stub.RestartChild(spb.RestartChildRequest(name=name), timeout=10))

    def drain(self) -> None:
        """SupervisorService.Drain."""
        self._ask(lambda stub: stub.Drain(spb.DrainRequest(), timeout=10))

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        with create_sync_channel(f"unix:{self.run_dir}/supervisor.sock") as channel:
            return question(supervisor_pb2_grpc.SupervisorServiceStub(channel))

    # --- what it shows ---------------------------------------------------------------------------------

    def get(self, path: str, **options: Any) -> HttpAnswer:
        """GETs from its public HTTP port."""
        return self.server.get(path, **options)

    def page(self) -> Page:
        """Its metrics now."""
        answer = self.get("/metrics")
        assert answer.status == 200
        return metrics.parse(answer.body)

    def worker_states(self) -> dict[str, str]:
        """What the gateway says of each worker."""
        found: dict[str, str] = self.get("/readyz").json()["workers"]
        return found

    def lines(self, name: str | None = None) -> list[tuple[str, str]]:
        """Whole lines of the log so far as (process, text), of one process or of all."""
        found = []
        for line in self.server.log.read_text(encoding="utf-8", errors="replace").splitlines():
            head, _, text = line.partition("] ")
            assert head.startswith("["), f"a line without its process: {line!r}"
            if name in (None, head[1:]):
                found.append((head[1:], text))
        return found

    def events(self, name: str | None = None) -> Iterator[Mapping[str, Any]]:
        """The log so far, of one process or of all."""
        for process, text in self.lines(name):
            if text.startswith("{"):
                yield {"process": process, **json.loads(text)}

    def said(self, text: str, name: str | None = None) -> int:
        """In how many events of the log `text` is."""
        return sum(text in str(event) for event in self.events(name))

    def wait_said(self, text: str, name: str | None = None, *, times: int = 1, seconds: float = 20.0) -> None:
        """Until the log has it."""
        eventually_sync(lambda: self.said(text, name) >= times, seconds, what=f"the log says {text!r}")

    def errors(self) -> list[str]:
        """Errors in the log."""
        return [
            f"[{event['process']}] {event['event']} {event.get('exception', '')}"
            for event in self.events()
            if event.get("level") in ("error", "critical")
        ]


def node_process(
    models: Iterable[Path],
    *,
    folder: Path,
    cache: Path,
    include: Iterable[str] = (),
    workers: int = 2,
    ports: Ports | None = None,
    environ: Mapping[str, str] | None = None,
) -> NodeProcess:
    """A node of CPU workers, not yet started.

    Args:
        models: model directories.
        folder: for its log and its run directory.
        cache: `cache_dir` of its workers.
        include: models to serve; all when empty.
        workers: how many.
        ports: free ones by default.
        environ: further variables.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "REACTANT_GPUS": "0",
        "REACTANT_CPU_WORKERS": str(workers),
        "INFERENCE_SERVER_MODEL_DIRS": ":".join(map(str, models)),
        "INFERENCE_SERVER_MODELS_INCLUDE": ":".join(include),
        "INFERENCE_SERVER_CACHE_DIR": str(cache),
        "INFERENCE_SERVER_ENDPOINTS_HOST": HOST,
        "INFERENCE_SERVER_RUNTIME_BACKEND": "cpu",
        **(environ or {}),
    }
    return NodeProcess(ports or free_ports(), folder / "run", folder / "log", settings)


@contextmanager
def serving(node: NodeProcess, *, expected: str = "\0") -> Iterator[NodeProcess]:
    """Starts `node` and stops it: with exit code 0, whole lines and no errors in its log, nothing left.

    Args:
        node: not yet started.
        expected: what is in errors that a test has asked for.
    """
    with node:
        node.wait_complete()
        yield node
        if node.server.running:
            assert node.stop() == 0, node.server.tail()
    assert not [error for error in node.errors() if expected not in error]
    assert_gone(node)


def assert_gone(node: NodeProcess) -> None:
    """Neither a process nor a file of the node is left."""
    assert not node.processes()
    assert not node.run_dir.exists(), list(node.run_dir.iterdir())


def environ_of(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty when it is gone, a zombie or another user's."""
    pairs = (entry.partition("=") for entry in _read(f"/proc/{pid}/environ").split("\0"))
    return {name: value for name, _, value in pairs if name}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
