from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from reactant_cli.main import app

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own configuration."""
    for prefix in ("REACTANT_", "INFERENCE_SERVER_"):
        for name in [name for name in os.environ if name.startswith(prefix)]:
            monkeypatch.delenv(name)


def reactant(*arguments: str, **environ: str) -> Result:
    return RUNNER.invoke(app, ["config", *arguments], env=environ)


def test_every_value_has_its_source(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("public_port: 9001\nglobal:\n  scheduler:\n    discipline: edf\n")
    result = reactant("--json", "--node-file", str(file), INFERENCE_SERVER_LOG_LEVEL="debug")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["node"]["public_port"] == {"value": "9001", "source": f"{file}:1"}
    assert document["worker0"]["scheduler.discipline"] == {"value": "edf", "source": f"{file}:4"}
    assert document["worker0"]["log_level"] == {"value": "debug", "source": "INFERENCE_SERVER_LOG_LEVEL"}
    assert document["worker0"]["scheduler.max_queue_depth"]["source"] == "default"
    assert not any(key.startswith("global.") for key in document["node"])


def test_only_what_was_changed_as_a_table() -> None:
    result = reactant("--changed", REACTANT_PUBLIC_PORT="9001")
    assert result.exit_code == 0
    assert "REACTANT_PUBLIC_PORT" in result.stdout
    assert "base_port" not in result.stdout


def test_nothing_changed_is_one_line() -> None:
    result = reactant("--changed")
    assert (result.exit_code, result.stdout) == (0, "All values are built-in defaults.\n")


def test_a_part_without_changes_is_no_empty_table() -> None:
    result = reactant("--changed", INFERENCE_SERVER_LOG_LEVEL="debug")
    assert "INFERENCE_SERVER_LOG_LEVEL" in result.stdout
    assert "node" not in result.stdout


def test_a_named_worker(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("workers:\n  - {name: a}\n  - {name: b, port: 8500}\n")
    document = json.loads(reactant("--json", "--worker", "b", REACTANT_NODE_FILE=str(file)).stdout)
    assert document["b"]["endpoints.port"]["value"] == "8500"


def test_all_faults_at_once_and_exit_code_78() -> None:
    result = reactant(REACTANT_PUBLIC_PORT="0", INFERENCE_SERVER_SCHEDULER_DISCIPLIN="edf")
    assert (result.exit_code, result.stdout) == (78, "")
    assert "REACTANT_PUBLIC_PORT" in result.stderr
    assert "did you mean INFERENCE_SERVER_SCHEDULER_DISCIPLINE" in result.stderr


def test_the_configuration_of_a_gateway(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yml"
    file.write_text("endpoints: [a:8080]\nscheduling:\n  mode: least_outstanding\n")
    environ = {"REACTANT_GATEWAY_LISTEN_PORT": "9001", "REACTANT_GATEWAY_WORKERS": "b:8080"}
    result = reactant("gateway", "--json", "--gateway-file", str(file), **environ)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert list(document) == ["gateway"]
    assert document["gateway"]["endpoints"] == {"value": "[a:8080]", "source": f"{file}:1"}
    assert document["gateway"]["listen.port"] == {"value": "9001", "source": "REACTANT_GATEWAY_LISTEN_PORT"}
    assert document["gateway"]["scheduling.mode"]["source"] == f"{file}:3"
    assert (
        result.stderr
        == f"reactant: REACTANT_GATEWAY_WORKERS is not followed: {file} owns the list of endpoints\n"
    )

    table = reactant("gateway", "--changed", REACTANT_GATEWAY_FILE=str(file)).stdout
    assert "least_outstanding" in table
    assert "worker_client" not in table


def test_faults_of_a_gateway_and_its_own_alone() -> None:
    result = reactant("gateway", REACTANT_GATEWAY_SCHEDULING_MOD="x", REACTANT_PUBLIC_PORT="0")
    assert (result.exit_code, result.stdout) == (78, "")
    assert "did you mean REACTANT_GATEWAY_SCHEDULING_MODE?" in result.stderr
    assert "REACTANT_PUBLIC_PORT" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("gateway", "--worker", "a"),
        ("gateway", "--node-file", "n.yaml"),
        ("node", "--gateway-file", "g.yml"),
        ("registry",),
    ],
)
def test_what_has_no_meaning_is_refused(arguments: tuple[str, ...]) -> None:
    result = reactant(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
