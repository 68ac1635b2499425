"""A worker's process: its Unix socket, and what SIGHUP does to it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.support.client import Client
from tests.support.messages import arrays, echo, floats
from tests.support.process import ServerProcess, worker_process

from reactant_core.testing import eventually_sync
from reactant_proto import control_pb2, control_pb2_grpc

pytestmark = pytest.mark.slow


@pytest.fixture
def worker(fixtures: Path, cache: Path, tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts a worker with `echo` alone and these variables."""
    with ExitStack() as stack:

        def start(**environ: str) -> ServerProcess:
            process = worker_process(
                [fixtures], log=tmp_path / "worker.log", cache=cache, include=("echo",), environ=environ
            )
            return stack.enter_context(process)

        yield start


@contextmanager
def asked_again(process: ServerProcess) -> Iterator[None]:
    """SIGHUP before the block, which looks at what the worker says of it."""
    process.signal(signal.SIGHUP)
    yield
    assert process.running


def is_ready_for(number: signal.Signals, pid: int) -> bool:
    """The process ignores or handles the signal."""
    masks = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool((int(masks["SigIgn"], 16) | int(masks["SigCgt"], 16)) >> (number - 1) & 1)


def says(process: ServerProcess, event: str) -> bool:
    return any(one.get("event") == event for one in process.events())


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_the_socket_serves_what_the_port_does(
    worker: Callable[..., ServerProcess], tmp_path: Path, transport: str
) -> None:
    path = tmp_path / "w.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    process = worker(
        INFERENCE_SERVER_ENDPOINTS_UNIX_SOCKET=str(path), INFERENCE_SERVER_ENDPOINTS_TRANSPORT=transport
    )
    process.wait_ready()
    with Client(f"unix:{path}") as over_socket, Client(process.address) as over_port:
        for client in (over_socket, over_port):
            np.testing.assert_array_equal(arrays(client.infer(echo()).ok())["Y"], floats(1, start=1.0))
            (answer,) = client.stub.ModelStreamInfer(iter([echo(id="a")]), timeout=10)
            assert answer.infer_response.id == "a"
        control = control_pb2_grpc.ControlServiceStub(over_socket.channel)
        status = control.ModelControlStatus(control_pb2.ModelControlStatusRequest(), timeout=10)
        assert [model.name for model in status.models] == ["echo"]
    assert process.stop() == 0
    assert not path.exists()


def test_a_socket_that_cannot_be_is_a_configuration_error(
    worker: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    path = tmp_path / "w.sock"
    path.touch()
    process = worker(INFERENCE_SERVER_ENDPOINTS_UNIX_SOCKET=str(path))
    assert process.wait(60) == 78
    assert f"cannot listen on unix:{path}: there is something that is no socket" in process.tail()


def test_sighup_reads_the_file_again_and_never_ends_the_worker(
    worker: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("global: {log_level: info}\nworkers: [{name: w}]\n")
    process = worker(REACTANT_NODE_FILE=str(file))
    # Long before it listens: the imports alone take seconds.
    eventually_sync(lambda: is_ready_for(signal.SIGHUP, process.pid), 10)
    with asked_again(process):
        process.wait_ready()
    with asked_again(process):
        eventually_sync(lambda: says(process, "configuration read"))

    file.write_text("global: {log_level: loud}\n")
    with asked_again(process):
        eventually_sync(lambda: says(process, "configuration refused, the old one stays"))
    changed = "{log_level: debug, hook_threads: 3, scheduler: {models: {echo: {weight: 3}}}}"
    file.write_text(f"global: {changed}\nworkers: [{{name: w}}]\n")
    with asked_again(process):
        eventually_sync(lambda: says(process, "changed, but only a restart applies it"))

    with Client(process.address) as client:
        client.infer(echo()).ok()
        control = control_pb2_grpc.ControlServiceStub(client.channel)
        (model,) = control.ModelControlStatus(control_pb2.ModelControlStatusRequest(), timeout=10).models
        assert model.weight == 3.0
    assert process.stop() == 0
