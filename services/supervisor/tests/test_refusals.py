"""What keeps a node from starting, found before any process is."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator

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
            REACTANT_PUBLIC_PORT=ports[0],
            REACTANT_PUBLIC_METRICS_PORT=ports[1],
            INFERENCE_SERVER_ENDPOINTS_HOST="127.0.0.1",
        )
    assert code == 1
    assert f"gRPC: cannot listen on 127.0.0.1:{ports[0]}" in log
    assert f"HTTP: cannot listen on 127.0.0.1:{ports[1]}" in log


def test_a_faulty_configuration_is_said_whole(refused: Refused) -> None:
    code, log = refused(
        REACTANT_ROLE="al", REACTANT_PUBLIC_PORT="0", INFERENCE_SERVER_SCHEDULER_DISCIPLIN="fifo"
    )
    assert code == 78
    for named in ("REACTANT_ROLE", "REACTANT_PUBLIC_PORT", "INFERENCE_SERVER_SCHEDULER_DISCIPLIN"):
        assert named in log


def test_a_role_of_a_later_version_names_the_one_there_is(refused: Refused) -> None:
    code, log = refused(REACTANT_ROLE="gateway")
    assert code == 78
    assert "role (REACTANT_ROLE): 'gateway' is a role, but this version only starts 'all'" in log


def test_a_faulty_log_format(refused: Refused) -> None:
    code, log = refused(REACTANT_LOG_FORMAT="xml")
    assert code == 78
    assert "accepted are console, json" in log


def test_arguments_are_wrong_use(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        app.main(["--frobnicate"])
    assert raised.value.code == 2
    assert "--frobnicate" in capfd.readouterr().err
