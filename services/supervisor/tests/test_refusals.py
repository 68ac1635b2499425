"""What keeps a node from starting, found before any process is."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reactant_supervisor import app

Refused = Callable[..., tuple[int, str]]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Refused]:
    """Runs the supervisor under the given variables; gives exit code and log. Starting fails the test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def never(*_: object) -> int:
        raise AssertionError("something was started")

    def run(**environ: str) -> tuple[int, str]:
        for name in [name for name in os.environ if name.startswith(("REACTANT_", "INFERENCE_SERVER_"))]:
            monkeypatch.delenv(name)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("reactant_core.lifecycle.run", never)
        monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        code = app.main([])
        return code, capfd.readouterr().err

    yield run
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def test_taken_ports_are_all_named(refused: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [str(taken.getsockname()[1]) for taken in (one, two)]
        code, log = refused(
            REACTANT_GPUS="0",
            REACTANT_CPU_WORKERS="1",
            REACTANT_PUBLIC_PORT=ports[0],
            REACTANT_PUBLIC_METRICS_PORT=ports[1],
            INFERENCE_SERVER_ENDPOINTS_HOST="127.0.0.1",
        )
    assert code == 1
    assert f"gRPC: cannot listen on 127.0.0.1:{ports[0]}" in log
    assert f"HTTP: cannot listen on 127.0.0.1:{ports[1]}" in log


def test_taken_ports_of_workers_are_named_with_the_public_ones(refused: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        public, base = (taken.getsockname()[1] for taken in (one, two))
        code, log = refused(
            REACTANT_GPUS="0",
            REACTANT_PUBLIC_PORT=str(public),
            REACTANT_BASE_PORT=str(base),
            INFERENCE_SERVER_ENDPOINTS_HOST="127.0.0.1",
        )
    assert code == 1
    assert f"gRPC: cannot listen on 127.0.0.1:{public}" in log
    assert f"worker0 gRPC: cannot listen on 127.0.0.1:{base}" in log
    assert "set REACTANT_BASE_PORT to another port" in log


def test_a_cuda_node_without_a_device_says_what_to_do(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    code, log = refused(CUDA_VISIBLE_DEVICES="-1", INFERENCE_SERVER_RUNTIME_BACKEND="cuda")
    assert code == 78
    assert "runtime.backend (INFERENCE_SERVER_RUNTIME_BACKEND): is cuda, but no device was found" in log
    assert "set REACTANT_GPUS=0" in log


def test_nothing_is_left_of_a_refusal(refused: Refused, tmp_path: Path) -> None:
    code, _ = refused(REACTANT_BASE_PORT="8001", REACTANT_GPUS="0", REACTANT_RUN_DIR=str(tmp_path / "run"))
    assert code == 78
    assert list(tmp_path.iterdir()) == []


def test_a_faulty_configuration_is_said_whole(refused: Refused) -> None:
    code, log = refused(
        REACTANT_ROLE="al", REACTANT_PUBLIC_PORT="0", INFERENCE_SERVER_SCHEDULER_DISCIPLIN="fifo"
    )
    assert code == 78
    for named in ("REACTANT_ROLE", "REACTANT_PUBLIC_PORT", "INFERENCE_SERVER_SCHEDULER_DISCIPLIN"):
        assert named in log


def test_a_role_of_a_later_version_names_those_there_are(refused: Refused) -> None:
    code, log = refused(REACTANT_ROLE="registry")
    assert code == 78
    assert "role (REACTANT_ROLE): 'registry' is a role of a later version; accepted here are all" in log


def test_a_faulty_log_format(refused: Refused) -> None:
    code, log = refused(REACTANT_LOG_FORMAT="xml")
    assert code == 78
    assert "accepted are console, json" in log


def test_arguments_are_wrong_use(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        app.main(["--frobnicate"])
    assert raised.value.code == 2
    assert "--frobnicate" in capfd.readouterr().err
