"""The supervisor as a process with several workers and a gateway, all of them small stand-ins."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import yaml

from reactant_core.rpc import create_sync_channel
from reactant_core.testing import eventually_sync
from reactant_proto import supervisor_pb2, supervisor_pb2_grpc

pytestmark = pytest.mark.slow

COMMON = """
    import http.server, json, os, signal, socket, sys, threading
    from concurrent import futures
    import grpc
    from reactant_proto import inference_pb2, inference_pb2_grpc

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGHUP, lambda *_: print("reloads", flush=True))
    state = {"ready": True, "state": "ready"}

    class Models(inference_pb2_grpc.GRPCInferenceServiceServicer):
        def RepositoryIndex(self, request, context):
            answer = inference_pb2.RepositoryIndexResponse()
            answer.models.add(name="digits", state="READY")
            return answer

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if state["ready"] else 503)
            self.end_headers()
            self.wfile.write(json.dumps({**state, "pid": os.getpid()}).encode())
        def log_message(self, *_): pass

    def serve(name, sock=None):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health, bind_and_activate=False)
        if isinstance(sock, int):
            server.server_address = ("127.0.0.1", sock)
            server.server_bind(); server.server_activate()
        else:
            server.socket.close()
            server.socket = sock
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def models(address):
        server = grpc.server(futures.ThreadPoolExecutor(2))
        inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Models(), server)
        port = server.add_insecure_port(address)
        server.start()
        return server, port

    def until_stopped():
        print("up", os.getpid(), "notify" if "NOTIFY_SOCKET" in os.environ else "alone", flush=True)
        while signal.sigtimedwait({signal.SIGTERM}, 0.02) is None:
            pass
        print("got SIGTERM", flush=True)
"""
WORKER = (
    COMMON
    + """
    env = os.environ
    server, _ = models("127.0.0.1:" + env["INFERENCE_SERVER_ENDPOINTS_PORT"])
    socket.socket(socket.AF_UNIX).bind(env["INFERENCE_SERVER_ENDPOINTS_UNIX_SOCKET"]) \\
        if "INFERENCE_SERVER_ENDPOINTS_UNIX_SOCKET" in env else None
    serve("http", int(env["INFERENCE_SERVER_ENDPOINTS_METRICS_PORT"]))
    until_stopped()
    server.stop(0)
"""
)
GATEWAY = (
    COMMON
    + """
    descriptors = dict(item.split("=") for item in os.environ["REACTANT_GATEWAY_LISTEN_FDS"].split(","))
    public = socket.socket(fileno=int(descriptors["grpc"]))
    public.setblocking(True)
    web = socket.socket(fileno=int(descriptors["http"]))
    web.setblocking(True)
    server, port = models("127.0.0.1:0")

    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def accept():
        while True:
            client, _ = public.accept()
            inner = socket.create_connection(("127.0.0.1", port))
            for pair in ((client, inner), (inner, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    serve("http", web)
    print("workers", os.environ.get("REACTANT_GATEWAY_WORKERS"), flush=True)
    until_stopped()
    state.update(ready=False, state="drained")
    hold = os.environ.get("REACTANT_GATEWAY_HOLD_FD")
    os.set_blocking(int(hold), False) if hold else None
    try:
        asked = os.read(int(hold), 1) if hold else b""
    except BlockingIOError:
        asked = b""
    if asked:
        os.set_blocking(int(hold), True)
        os.read(int(hold), 1)
    print("let go", flush=True)
    os._exit(0)
"""
)


def free_range(count: int) -> int:
    """The first of `count` ports in a row that nothing listens on."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
        if port + count < 65536 and all(_free(port + n) for n in range(count)):
            return port


def _free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


class Node:
    """A running supervisor, the lines it has written, and where it is reached."""

    def __init__(self, process: subprocess.Popen[str], ports: int, run_dir: Path) -> None:
        self.process = process
        self.run_dir = run_dir
        self.grpc_port, self.http_port, self.base_port, self.metrics_port = (ports + n * 4 for n in range(4))
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.removesuffix("\n"))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, text: str, times: int = 1) -> str:
        eventually_sync(lambda: self.text.count(text) >= times, 30, what=text)
        return next(line for line in self.lines if text in line)

    def pid(self, name: str) -> int:
        """The process id of the newest life of `name`."""
        self.until(f"[{name}] up")
        return int([line for line in self.lines if line.startswith(f"[{name}] up")][-1].split()[2])

    def ended(self) -> int:
        code = self.process.wait(40)
        self._reading.join(10)
        return code

    def order(self, *texts: str) -> bool:
        places = [self.text.index(text) for text in texts]
        return places == sorted(places)

    def readyz(self) -> dict[str, object]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=20)
        try:
            connection.request("GET", "/readyz")
            answer: dict[str, object] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()


Start = Callable[..., Node]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a supervisor over stand-ins; two workers unless told otherwise."""
    for package, code in (("reactant_worker", WORKER), ("reactant_gateway", GATEWAY)):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / "__main__.py").write_text(textwrap.dedent(code))
    nodes: list[Node] = []

    def _start(**environ: str) -> Node:
        ports = free_range(16)
        env = os.environ | {
            "PYTHONPATH": str(tmp_path),
            "INFERENCE_SERVER_ENDPOINTS_HOST": "127.0.0.1",
            "REACTANT_GPUS": "0",
            "REACTANT_RUN_DIR": str(tmp_path / "run"),
            "REACTANT_PUBLIC_PORT": str(ports),
            "REACTANT_PUBLIC_METRICS_PORT": str(ports + 4),
            "REACTANT_BASE_PORT": str(ports + 8),
            "REACTANT_METRICS_BASE_PORT": str(ports + 12),
            **environ,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "reactant_supervisor"], env=env, stderr=subprocess.PIPE, text=True
        )
        nodes.append(Node(process, ports, tmp_path / "run"))
        return nodes[-1]

    yield _start
    for node in nodes:
        node.process.kill()
        node.ended()
        assert node.process.stderr is not None
        node.process.stderr.close()


def gone(pid: int) -> bool:
    """Whether `pid` no longer runs; a zombie does not run, once its other threads, too, are gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except FileNotFoundError:
        return True


def test_a_node_of_two_starts_says_where_it_is_and_stops_in_order(start: Start) -> None:
    node = start()
    node.until("worker0: ready")
    node.until("worker1: ready")
    ready = node.until("ready: gRPC")
    assert f"ready: gRPC 127.0.0.1:{node.grpc_port}  HTTP http://127.0.0.1:{node.http_port} (" in ready
    assert re.search(r"\(/readyz /metrics\)  workers: (2|[01] of 2)  models: digits\W", ready)
    sockets = [f"unix:{node.run_dir}/worker{n}.sock" for n in range(2)]
    assert node.until("[gateway] workers") == f"[gateway] workers {','.join(sockets)}"
    written = yaml.safe_load((node.run_dir / "node.yaml").read_text())
    assert [entry["name"] for entry in written["workers"]] == ["worker0", "worker1"]
    assert stat.S_IMODE((node.run_dir / "supervisor.sock").stat().st_mode) == 0o660
    pids = [node.pid(name) for name in ("worker0", "worker1", "gateway")]
    node.process.send_signal(signal.SIGTERM)
    assert node.ended() == 0, node.text
    for worker in ("[worker0]", "[worker1]"):
        assert node.order("[gateway] got SIGTERM", f"{worker} got SIGTERM", "[gateway] let go")
    assert all(
        line.startswith(("[worker0] ", "[worker1] ", "[gateway] ", "[supervisor] ")) for line in node.lines
    )
    assert all(map(gone, pids))
    assert not node.run_dir.exists()


def test_a_gateway_that_is_killed_refuses_no_connection_while_it_comes_back(start: Start) -> None:
    node = start()
    node.until("ready: gRPC")
    first = node.pid("gateway")
    outcomes: list[str] = []
    done = threading.Event()

    def connect() -> None:
        while not done.is_set():
            for port in (node.grpc_port, node.http_port):
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=20).close()
                    outcomes.append("")
                except OSError as error:
                    outcomes.append(str(error))
            done.wait(0.002)

    connecting = threading.Thread(target=connect)
    connecting.start()
    try:
        os.kill(first, signal.SIGKILL)
        # Asked while nobody is there: answered by the next.
        assert node.readyz()["pid"] != first
        node.until("[gateway] up", times=2)
    finally:
        done.set()
        connecting.join()
    assert len(outcomes) > 20
    assert set(outcomes) == {""}
    assert node.text.count("[worker0] up") == 1
    node.until("ready: gRPC", times=2)


def test_when_it_stops_a_connection_is_refused_as_soon_as_nobody_would_take_it(start: Start) -> None:
    node = start()
    node.until("ready: gRPC")
    gateway = node.pid("gateway")
    node.process.send_signal(signal.SIGTERM)
    node.until("[worker0] got SIGTERM")
    eventually_sync(lambda: gone(gateway))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", node.grpc_port), timeout=20)
    assert node.ended() == 0


def test_nothing_outlives_a_killed_supervisor_and_its_ports_can_be_had_at_once(start: Start) -> None:
    node = start()
    node.until("ready: gRPC")
    node.until("worker1: ready")
    pids = [node.pid(name) for name in ("worker0", "worker1", "gateway")]
    node.process.kill()
    node.process.wait()
    eventually_sync(lambda: all(map(gone, pids)))
    for port in (node.grpc_port, node.http_port, node.base_port, node.base_port + 1, node.metrics_port):
        with socket.create_server(("127.0.0.1", port)):
            pass
    again = start(
        REACTANT_PUBLIC_PORT=str(node.grpc_port),
        REACTANT_PUBLIC_METRICS_PORT=str(node.http_port),
        REACTANT_BASE_PORT=str(node.base_port),
        REACTANT_METRICS_BASE_PORT=str(node.metrics_port),
    )
    again.until("ready: gRPC")
    assert "cannot be used" not in again.text


def test_a_worker_that_is_killed_comes_back_and_the_others_do_not_notice(start: Start) -> None:
    node = start(REACTANT_CPU_WORKERS="3")
    node.until("ready: gRPC")
    others = [node.pid(name) for name in ("worker0", "worker2", "gateway")]
    os.kill(node.pid("worker1"), signal.SIGKILL)
    node.until("worker1 was killed by SIGKILL")
    # What a worker of its kind would have removed; a stand-in does not.
    (node.run_dir / "worker1.sock").unlink()
    node.until("[worker1] up", times=2)
    assert [node.pid(name) for name in ("worker0", "worker2", "gateway")] == others


@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_systemd_is_told_once_by_the_supervisor_when_the_node_is_ready(
    start: Start, tmp_path: Path, abstract: bool, workers: str
) -> None:
    address = f"\0reactant-test-{os.getpid()}-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        manager.settimeout(30)
        node = start(
            NOTIFY_SOCKET=address.replace("\0", "@"), WATCHDOG_USEC="400000", REACTANT_CPU_WORKERS=workers
        )
        told: list[str] = []
        while "READY=1" not in told:
            told.append(hear(manager, node))
        assert node.readyz()["ready"] is True
        while told[-1] != "WATCHDOG=1":
            told.append(hear(manager, node))
        name = "worker0" if workers == "1" else "gateway"
        node.until("ready: gRPC")
        os.kill(node.pid(name), signal.SIGKILL)
        (node.run_dir / "worker0.sock").unlink(missing_ok=True)
        node.until(f"[{name}] up", times=2)
        node.until("ready: gRPC", times=2)
        node.process.send_signal(signal.SIGTERM)
        while told[-1] != "STOPPING=1":
            told.append(hear(manager, node))
        assert node.ended() == 0
    assert told.count("READY=1") == 1
    assert any(line.startswith("STATUS=") and f"{name}: ready" in line for line in told)
    assert "notify" not in node.text.replace("/notify", "")


def hear(manager: socket.socket, node: Node) -> str:
    """The next datagram, which must be the supervisor's own."""
    data, ancillary, _, _ = manager.recvmsg(1000, 1000)
    pid = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
    assert pid == node.process.pid
    return data.decode()


def test_a_hangup_writes_what_workers_read_and_is_handed_on(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("global: {log_level: info}\n")
    node = start(REACTANT_NODE_FILE=str(file))
    node.until("ready: gRPC")
    node.until("worker1: ready")

    def level() -> str:
        written: str = yaml.safe_load((node.run_dir / "node.yaml").read_text())["global"]["log_level"]
        return written

    for times, (text, said, expected) in enumerate(
        [
            ("global: {log_level: debug}\n", "", "debug"),
            ("global: {log_level: loud}\n", "stays as it was: 1 fault in the configuration", "debug"),
            ("global: {log_level: info}\nworkers: [{name: a}, {name: b}]\n", "need a restart", "debug"),
        ],
        start=1,
    ):
        file.write_text(text)
        node.process.send_signal(signal.SIGHUP)
        node.until("SIGHUP: handed on to worker0, worker1, gateway", times)
        for name in ("worker0", "worker1", "gateway"):
            node.until(f"[{name}] reloads", times)
        assert said in node.text
        assert level() == expected
    assert node.process.poll() is None


def test_it_can_be_asked_told_to_restart_one_and_to_stop(start: Start) -> None:
    node = start()
    node.until("ready: gRPC")
    node.until("worker1: ready")
    with create_sync_channel(f"unix:{node.run_dir}/supervisor.sock") as channel:
        stub = supervisor_pb2_grpc.SupervisorServiceStub(channel)
        status = stub.Status(supervisor_pb2.NodeStatusRequest(), timeout=20)
        assert (status.role, status.ready, status.stopping, status.pid) == (
            "all",
            True,
            False,
            node.process.pid,
        )
        assert (list(status.devices), status.devices_source) == ([], "REACTANT_GPUS")
        before = {child.name: child for child in status.children}
        assert {name: child.pid for name, child in before.items()} == {
            name: node.pid(name) for name in ("worker0", "worker1", "gateway")
        }
        assert {child.state for child in status.children} == {"running"}
        assert before["worker0"].progress == "ready"
        with pytest.raises(grpc.RpcError) as raised:
            stub.RestartChild(supervisor_pb2.RestartChildRequest(name="worker7"), timeout=20)
        assert raised.value.code() == grpc.StatusCode.NOT_FOUND
        assert "there are worker0, worker1, gateway" in str(raised.value)
        stub.RestartChild(supervisor_pb2.RestartChildRequest(name="gateway"), timeout=20)
        node.until("[gateway] up", times=2)
        status = stub.Status(supervisor_pb2.NodeStatusRequest(), timeout=20)
        after = {child.name: child for child in status.children}
        assert after["gateway"].pid != before["gateway"].pid
        assert after["worker0"].pid == before["worker0"].pid
        assert (after["gateway"].restarts, after["gateway"].failures) == (1, 0)
        assert after["gateway"].last_exit == "exited with code 0"
        stub.Drain(supervisor_pb2.DrainRequest(), timeout=20)
    assert node.ended() == 0, node.text


def test_role_workers_runs_workers_alone(start: Start) -> None:
    node = start(REACTANT_ROLE="workers")
    ready = node.until("ready: gRPC")
    assert f"gRPC 127.0.0.1:{node.base_port}  HTTP" in ready
    assert f", gRPC 127.0.0.1:{node.base_port + 1}  HTTP" in ready
    assert "[gateway]" not in node.text
    node.process.send_signal(signal.SIGTERM)
    assert node.ended() == 0


def test_role_gateway_runs_a_gateway_alone(start: Start) -> None:
    node = start(REACTANT_ROLE="gateway", REACTANT_GATEWAY_WORKERS="127.0.0.1:1")
    node.until("ready: gRPC")
    assert node.until("[gateway] workers") == "[gateway] workers 127.0.0.1:1"
    assert "[worker0]" not in node.text
    node.process.send_signal(signal.SIGTERM)
    assert node.ended() == 0, node.text


def test_two_nodes_on_one_machine_keep_out_of_each_others_way(start: Start) -> None:
    first = start()
    first.until("ready: gRPC")
    second = start()
    second.until("ready: gRPC")
    assert f"{first.run_dir} is another node's: using " in second.text
    assert f"unix:{first.run_dir}/worker0.sock" not in second.until("[gateway] workers")
    for node in (second, first):
        node.process.send_signal(signal.SIGTERM)
        assert node.ended() == 0, node.text
