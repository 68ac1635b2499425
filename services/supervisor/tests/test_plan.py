from __future__ import annotations

from pathlib import Path

import pytest

from reactant_core.config import ConfigError, load_node_config
from reactant_supervisor.plan import NodePlan, make_plan


def plan(environ: dict[str, str], *, terminal: bool = False) -> NodePlan:
    return make_plan(load_node_config(environ), environ, python="/usr/bin/python3", terminal=terminal)


def test_one_worker_binds_the_public_ports() -> None:
    made = plan({"PATH": "/bin", "INFERENCE_SERVER_MODEL_DIRS": "/models"})
    assert (made.host, made.grpc_port, made.http_port, made.notes) == ("0.0.0.0", 8001, 8002, ())
    assert (made.worker.name, made.worker.argv) == ("worker0", ("/usr/bin/python3", "-m", "reactant_worker"))
    assert made.worker.env == {
        "PATH": "/bin",
        "INFERENCE_SERVER_MODEL_DIRS": "/models",
        "INFERENCE_SERVER_ENDPOINTS_PORT": "8001",
        "INFERENCE_SERVER_ENDPOINTS_METRICS_PORT": "8002",
        "INFERENCE_SERVER_NAME": "worker0",
        "PYTHONUNBUFFERED": "1",
        "INFERENCE_SERVER_LAMEDUCK_SECONDS": "0",
    }


def test_a_lameduck_time_that_was_set_stays() -> None:
    assert (
        plan({"INFERENCE_SERVER_LAMEDUCK_SECONDS": "3"}).worker.env["INFERENCE_SERVER_LAMEDUCK_SECONDS"]
        == "3"
    )


def test_a_lameduck_time_of_the_workers_entry_stays(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("workers:\n  - {name: a, lameduck_seconds: 1.5}\n")
    environ = {"REACTANT_NODE_FILE": str(file)}
    assert "INFERENCE_SERVER_LAMEDUCK_SECONDS" not in plan(environ).worker.env
    environ["INFERENCE_SERVER_LAMEDUCK_SECONDS"] = "3"
    assert plan(environ).worker.env["INFERENCE_SERVER_LAMEDUCK_SECONDS"] == "3"


@pytest.mark.parametrize(
    ("lameduck", "drain", "named"),
    [
        ("10", "20", ("lameduck_seconds (10 s)", "drain_timeout_seconds (20 s)", "27 s")),
        ("", "25.5", ("lameduck_seconds (0 s)", "drain_timeout_seconds (25.5 s)", "27 s")),
    ],
)
def test_a_stop_that_does_not_fit_into_its_budget_is_said(
    lameduck: str, drain: str, named: tuple[str, ...]
) -> None:
    (note,) = plan(
        {"INFERENCE_SERVER_LAMEDUCK_SECONDS": lameduck, "INFERENCE_SERVER_DRAIN_TIMEOUT_SECONDS": drain}
    ).notes
    assert all(part in note for part in named)


@pytest.mark.parametrize(("lameduck", "drain"), [("2", ""), ("", "23"), ("3", "20")])
def test_a_stop_that_fits_is_no_note(lameduck: str, drain: str) -> None:
    environ = {"INFERENCE_SERVER_LAMEDUCK_SECONDS": lameduck, "INFERENCE_SERVER_DRAIN_TIMEOUT_SECONDS": drain}
    assert plan(environ).notes == ()


def test_the_budget_is_held_against_the_workers_own_entry(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("workers:\n  - {name: a, drain_timeout_seconds: 40}\n")
    (note,) = plan({"REACTANT_NODE_FILE": str(file)}).notes
    assert "drain_timeout_seconds (40 s)" in note


def test_ports_and_host_can_be_set() -> None:
    made = plan(
        {
            "REACTANT_PUBLIC_PORT": "9001",
            "REACTANT_PUBLIC_METRICS_PORT": "9002",
            "INFERENCE_SERVER_ENDPOINTS_HOST": "127.0.0.1",
        }
    )
    assert (made.host, made.grpc_port, made.http_port) == ("127.0.0.1", 9001, 9002)
    assert made.worker.env["INFERENCE_SERVER_ENDPOINTS_PORT"] == "9001"


def test_a_workers_own_port_is_not_followed_and_that_is_said() -> None:
    made = plan({"INFERENCE_SERVER_ENDPOINTS_PORT": "7000"})
    (note,) = made.notes
    assert "INFERENCE_SERVER_ENDPOINTS_PORT=7000 is not followed" in note
    assert "REACTANT_PUBLIC_PORT (8001)" in note


def test_a_worker_of_the_node_file_gives_its_name(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("workers:\n  - name: vision\n")
    made = plan({"REACTANT_NODE_FILE": str(file)})
    assert (made.worker.name, made.worker.env["INFERENCE_SERVER_NAME"]) == ("vision", "vision")


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({}, False, {}),
        ({}, True, {"REACTANT_LOG_FORMAT": "console", "FORCE_COLOR": "1"}),
        ({"NO_COLOR": "1"}, True, {"REACTANT_LOG_FORMAT": "console"}),
        (
            {"REACTANT_LOG_FORMAT": "json"},
            True,
            {"REACTANT_LOG_FORMAT": "json", "FORCE_COLOR": "1"},
        ),
    ],
)
def test_children_write_for_who_reads(
    environ: dict[str, str], terminal: bool, expected: dict[str, str]
) -> None:
    env = plan(environ, terminal=terminal).worker.env
    assert {k: v for k, v in env.items() if k in ("REACTANT_LOG_FORMAT", "FORCE_COLOR")} == expected


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ("0", {"INFERENCE_SERVER_RUNTIME_BACKEND": "cpu"}),
        ("1", {}),
        ("GPU-1f3a", {"CUDA_VISIBLE_DEVICES": "GPU-1f3a"}),
        ("3,", {"CUDA_VISIBLE_DEVICES": "3"}),
    ],
)
def test_the_device_is_handed_on(gpus: str, expected: dict[str, str]) -> None:
    env = plan({"REACTANT_GPUS": gpus}).worker.env
    assert {k: v for k, v in env.items() if k.endswith(("_BACKEND", "_DEVICES"))} == expected


def test_everything_that_is_not_offered_yet_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        plan({"REACTANT_ROLE": "gateway", "REACTANT_CPU_WORKERS": "2", "REACTANT_GPUS": "0,1"})
    text = str(raised.value)
    assert "role (REACTANT_ROLE): 'gateway' is a role, but this version only starts 'all'" in text
    assert "cpu_workers (REACTANT_CPU_WORKERS): 2; this version starts one worker" in text
    assert "gpus (REACTANT_GPUS): 2 devices" in text


def test_grpc_and_http_cannot_share_a_port() -> None:
    with pytest.raises(ConfigError, match="gRPC and HTTP need a port each"):
        plan({"REACTANT_PUBLIC_METRICS_PORT": "8001"})
