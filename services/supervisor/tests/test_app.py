"""The supervisor as a process, with a small stand-in for the worker's package."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reactant_core.testing import eventually_sync, free_port

pytestmark = pytest.mark.slow

WORKER = """
    import http.server, json, os, signal, sys, threading
    from concurrent import futures
    import grpc
    from reactant_proto import inference_pb2, inference_pb2_grpc

    env = os.environ
    class Models(inference_pb2_grpc.GRPCInferenceServiceServicer):
        def RepositoryIndex(self, request, context):
            answer = inference_pb2.RepositoryIndexResponse()
            answer.models.add(name="digits", state="READY")
            answer.models.add(name="broken", state="UNAVAILABLE", reason="no weights")
            return answer

    asked = 0
    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            global asked
            asked += 1
            body = {"ready": asked > 1, "state": "compiling", "programs": {"done": 1, "total": 2}}
            self.send_response(200 if asked > 1 else 503)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())
        def log_message(self, *_): pass

    server = grpc.server(futures.ThreadPoolExecutor(2))
    inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Models(), server)
    server.add_insecure_port("127.0.0.1:" + env["INFERENCE_SERVER_ENDPOINTS_PORT"])
    server.start()
    web = http.server.ThreadingHTTPServer(
        ("127.0.0.1", int(env["INFERENCE_SERVER_ENDPOINTS_METRICS_PORT"])), Health)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    threading.Thread(target=web.serve_forever, daemon=True).start()
    print("child", env["INFERENCE_SERVER_NAME"], os.getpid(), flush=True)
    print("got", signal.sigwait({signal.SIGTERM, signal.SIGINT}).name, flush=True)
    if "STUBBORN" in env:
        signal.sigwait({signal.SIGUSR1})
    server.stop(0)
    sys.exit(0)
"""


class Node:
    """A running supervisor and the lines it has written."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, text: str) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} never came: {''.join(self.lines)}")

    def worker_pid(self) -> int:
        return int(self.until("child worker0").split()[-1])

    def ended(self) -> tuple[int, str]:
        """Exit code and everything written."""
        assert self.process.stderr is not None
        self.lines += list(self.process.stderr)
        return self.process.wait(30), "".join(self.lines)


Start = Callable[..., Node]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a supervisor whose worker runs the given code."""
    nodes: list[Node] = []

    def _start(worker: str = WORKER, *, stderr: int = subprocess.PIPE, **environ: str) -> Node:
        package = tmp_path / "reactant_worker"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(textwrap.dedent(worker))
        env = os.environ | {
            "PYTHONPATH": str(tmp_path),
            "INFERENCE_SERVER_ENDPOINTS_HOST": "127.0.0.1",
            "REACTANT_GPUS": "0",
            "REACTANT_CPU_WORKERS": "1",
            "REACTANT_RUN_DIR": str(tmp_path / "run"),
            "REACTANT_PUBLIC_PORT": str(free_port()),
            "REACTANT_PUBLIC_METRICS_PORT": str(free_port()),
            **environ,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "reactant_supervisor"], env=env, stderr=stderr, text=True
        )
        nodes.append(Node(process))
        return nodes[-1]

    yield _start
    for node in nodes:
        node.process.kill()
        node.process.wait()
        if node.process.stderr is not None:
            node.process.stderr.close()


def gone(pid: int) -> bool:
    """Whether `pid` no longer runs; a zombie does not run, once its other threads, too, are gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_says_progress_and_where_requests_go_and_a_stop_is_clean(
    start: Start, number: signal.Signals
) -> None:
    node = start(REACTANT_PUBLIC_PORT=(port := str(free_port())))
    assert node.until("child worker0").startswith("[worker0] child worker0 ")
    assert "worker0: compiling, 1/2 programs" in node.until("compiling")
    ready = node.until("ready: ")
    assert ready.startswith("[supervisor] ")
    assert f"ready: gRPC 127.0.0.1:{port}  HTTP http://127.0.0.1:" in ready
    assert "(/readyz /metrics)  models: digits; not served: broken" in ready
    node.process.send_signal(number)
    code, text = node.ended()
    assert code == 0, text
    assert "[worker0] got SIGTERM\n" in text
    assert [line for line in text.splitlines() if not line.startswith(("[worker0] ", "[supervisor] "))] == []


def test_a_killed_supervisor_leaves_no_orphan_and_the_port_is_free_at_once(start: Start) -> None:
    node = start(REACTANT_PUBLIC_PORT=(port := str(free_port())))
    pid = node.worker_pid()
    node.until("ready: ")
    node.process.kill()
    node.process.wait()
    eventually_sync(lambda: gone(pid))
    with socket.create_server(("127.0.0.1", int(port))):
        pass


def test_a_second_signal_ends_everything_at_once(start: Start) -> None:
    node = start(STUBBORN="1")
    pid = node.worker_pid()
    node.until("ready: ")
    node.process.send_signal(signal.SIGTERM)
    node.until("got SIGTERM")
    # What comes within a second of the first is the same request, so ask until one counts.
    eventually_sync(lambda: asked_to_end(node.process))
    assert node.process.wait(30) == 128 + signal.SIGTERM
    eventually_sync(lambda: gone(pid))


def asked_to_end(process: subprocess.Popen[str]) -> bool:
    """Sends SIGTERM; whether the process has ended."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return process.poll() is not None


def test_a_signal_to_the_whole_group_is_one_clean_stop(start: Start) -> None:
    node = start("""
        import asyncio, os, signal, sys
        from reactant_core import lifecycle

        async def main(stop):
            forwarded = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, forwarded.set)
            print("child worker0", os.getpid(), flush=True)
            await stop.requested.wait()
            await forwarded.wait()
            return 0

        sys.exit(lifecycle.run(main))
    """)
    pid = node.worker_pid()
    os.kill(pid, signal.SIGTERM)
    node.process.send_signal(signal.SIGTERM)
    node.until("stopping worker0")
    os.kill(pid, signal.SIGUSR1)
    code, text = node.ended()
    assert code == 0, text
    assert "worker0 stopped" in text


def test_a_worker_that_refuses_its_configuration_is_started_once(start: Start) -> None:
    code, text = start("print('no such device', flush=True); raise SystemExit(78)").ended()
    assert code == 78
    assert text.count("[worker0] no such device") == 1
    assert "exited with code 78: it refused its configuration" in text


def test_a_worker_that_keeps_dying_takes_the_node_down(start: Start) -> None:
    code, text = start(
        "import os; print('life', flush=True); os.abort()", REACTANT_SUPERVISOR_MAX_RESTARTS="1"
    ).ended()
    assert code == 1
    assert text.count("[worker0] life") == 2
    assert "was killed by SIGABRT" in text
    assert "it failed 2 times in a row and 1 restarts are allowed" in text


def test_a_terminal_that_closes_ends_the_node_and_a_hangup_alone_does_not(start: Start) -> None:
    ours, theirs = os.openpty()
    node = start(stderr=theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        seen = b""
        while b"ready: " not in seen:
            seen += terminal.read(65536)
        node.process.send_signal(signal.SIGHUP)
        while b"SIGHUP: " not in seen:
            seen += terminal.read(65536)
        assert node.process.poll() is None
    node.process.send_signal(signal.SIGHUP)
    assert node.process.wait(30) == 0


def test_a_flood_of_lines_stays_whole_and_does_not_hold_up_a_stop(start: Start) -> None:
    node = start("""
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        while True:
            sys.stdout.write("x" * 500 + "\\n")
    """)
    for _ in range(1000):
        node.until("x" * 500)
    # Nobody reads now: the pipe is full, and the supervisor must still hear the signal.
    node.process.send_signal(signal.SIGTERM)
    code, text = node.ended()
    assert code == 0
    floods = [line for line in text.splitlines() if line.startswith("[worker0]")]
    assert set(floods) == {"[worker0] " + "x" * 500}
