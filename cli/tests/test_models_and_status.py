from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from reactant_cli.main import app
from reactant_core.testing import free_port

RUNNER = CliRunner()
COMPILING = {
    "ready": False,
    "state": "compiling",
    "models": {"total": 2, "ready": 1, "failed": 0},
    "programs": {"done": 3, "total": 8},
    "seconds_left": 4.6,
}
SERVING = {"ready": True, "state": "serving", "models": {"total": 2, "ready": 2, "failed": 0}}


def reactant(*arguments: str) -> Result:
    return RUNNER.invoke(app, list(arguments))


def test_models_as_a_table(server: Any) -> None:
    result = reactant("models", "--url", server.url)
    assert result.exit_code == 0
    for shown in (
        "echo_bytes",
        "READY",
        "text BYTES[-1]",
        "X FP32[-1, 4]",
        "bad",
        "UNAVAILABLE",
        "no weights",
    ):
        assert shown in result.stdout


def test_models_as_json(server: Any) -> None:
    result = reactant("models", "--url", server.url, "--json")
    by_name = {entry["name"]: entry for entry in json.loads(result.stdout)}
    x = {"name": "X", "datatype": "FP32", "shape": [-1, 4]}
    assert by_name["echo"] == {"name": "echo", "state": "READY", "reason": "", "inputs": [x], "outputs": [x]}
    assert by_name["bad"] == {
        "name": "bad",
        "state": "UNAVAILABLE",
        "reason": "no weights",
        "inputs": [],
        "outputs": [],
    }


def test_a_model_that_went_between_two_calls_is_still_listed(server: Any) -> None:
    server.index["gone"] = ("READY", "")
    result = reactant("models", "--url", server.url, "--json")
    assert {"name": "gone", "state": "READY", "reason": "", "inputs": [], "outputs": []} in json.loads(
        result.stdout
    )


def test_no_models(server: Any) -> None:
    server.index.clear()
    assert "serves no models" in reactant("models", "--url", server.url).stdout


def test_status_of_a_ready_server(server: Any, readyz: Any) -> None:
    result = reactant("status", "--url", server.url, "--http", readyz.url)
    assert result.exit_code == 0, result.output
    for shown in (server.url, "fake 1.2", "yes", "serving", "4 READY, 1 UNAVAILABLE", "bad: no weights"):
        assert shown in result.stdout


def test_status_while_models_compile_is_exit_code_1(server: Any, readyz: Any) -> None:
    server.is_ready = False
    readyz.script = [COMPILING]
    result = reactant("status", "--url", server.url, "--http", readyz.url)
    assert result.exit_code == 1
    assert "compiling, 3/8 programs, 1/2 models ready, about 5 s left" in result.stdout


def test_status_as_json_without_the_http_port(server: Any) -> None:
    result = reactant("status", "--url", server.url, "--http", f"127.0.0.1:{free_port()}", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert (report["live"], report["ready"], report["progress"]) == (True, True, None)
    assert report["server"] == {"name": "fake", "version": "1.2", "extensions": ["model_repository"]}
    assert report["not_served"] == {"bad": "no weights"}


@pytest.mark.slow
def test_watch_says_each_step_and_ends_when_ready(server: Any, readyz: Any) -> None:
    readyz.script = [COMPILING, COMPILING, SERVING]
    result = reactant("status", "--watch", "--url", server.url, "--http", readyz.url)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "compiling, 3/8 programs, 1/2 models ready, about 5 s left"
    assert lines[1] == "serving, 2/2 models ready"


def test_watch_as_json_lines(server: Any, readyz: Any) -> None:
    readyz.script = [SERVING]
    result = reactant("status", "--watch", "--json", "--url", server.url, "--http", readyz.url)
    first, rest = result.stdout.split("\n", 1)
    assert json.loads(first)["models"] == {"total": 2, "ready": 2, "failed": 0}
    assert json.loads(rest)["ready"] is True


def test_watch_without_the_http_port_asks_over_grpc(server: Any) -> None:
    result = reactant("status", "--watch", "--url", server.url, "--http", f"127.0.0.1:{free_port()}")
    assert result.exit_code == 0
    assert result.stdout.startswith("ready\n")


@pytest.mark.parametrize("command", ["models", "status"])
def test_no_server(command: str) -> None:
    url = f"127.0.0.1:{free_port()}"
    result = reactant(command, "--url", url)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert f"no server answers at {url} (connection refused)" in line


def test_an_http_address_of_another_form(server: Any) -> None:
    result = reactant("status", "--url", server.url, "--http", "localhost")
    assert result.exit_code == 2
    assert "--http 'localhost': write it as host:port" in result.stderr


def test_a_name_that_no_host_can_have() -> None:
    result = reactant("status", "--url", "a..b:1", "--timeout", "2")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no server answers at a..b:1" in result.stderr


def test_unknown_options_are_wrong_use() -> None:
    assert reactant("models", "--frobnicate").exit_code == 2
