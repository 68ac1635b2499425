from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner, Result

from reactant_cli.main import app
from reactant_core.testing import free_port
from reactant_proto import control_pb2 as pb

RUNNER = CliRunner()

STATUS = pb.ModelControlStatusResponse(
    worker="w3",
    control_mode="explicit",
    discipline="fair",
    max_concurrent_requests=7,
    models=[
        pb.ModelControl(
            name="encoder",
            version="1",
            state="READY",
            residency="system",
            device_resident=True,
            weight_bytes=3 << 20,
            weight=2.5,
            queue_depth=6,
            compute_seconds=0.25,
            requests_served=40,
            dispatches=10,
            rows_served=80,
            max_batch_size=32,
            max_queue_delay_ms=1.5,
        ),
        pb.ModelControl(name="search", state="READY", calls=["encoder", "ranker"]),
        pb.ModelControl(name="broken", state="UNAVAILABLE", reason="no programs"),
    ],
)


def reactant(*arguments: str) -> Result:
    return RUNNER.invoke(app, ["worker", *arguments])


def failure(result: Result, exit_code: int = 1) -> str:
    """The one line on standard error; nothing else may have been printed."""
    assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
    (line,) = result.stderr.splitlines()
    return line


def test_status_as_tables(worker: Any, control: Any) -> None:
    control.status = STATUS
    result = reactant("status", "--url", worker.url)

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    (encoder,) = [line for line in lines if "encoder" in line and "calls" not in line]
    for shown in (
        "READY",
        "2.5",
        "system",
        "3 MiB, device",
        "6",
        "40",
        "8.0",
        "0.25",
        "up to 32, waits 1.5 ms",
    ):
        assert shown in encoder
    for shown in ("w3", "explicit", "fair", "no limit", "at most 7", "calls encoder, ranker", "no programs"):
        assert shown in result.stdout


def test_status_as_json_has_every_field(worker: Any, control: Any) -> None:
    control.status = STATUS
    document = json.loads(reactant("status", "--url", worker.url, "--json").stdout)

    assert (document["worker"], document["weight_budget_bytes"]) == ("w3", 0)
    encoder, search, broken = document["models"]
    assert set(encoder) == {field.name for field in pb.ModelControl.DESCRIPTOR.fields}
    assert (encoder["weight"], encoder["host_resident"], encoder["weight_bytes"]) == (2.5, False, 3 << 20)
    assert search["calls"] == ["encoder", "ranker"]
    assert broken["reason"] == "no programs"


def test_a_worker_without_models(worker: Any) -> None:
    assert "has no models" in reactant("status", "--url", worker.url).stdout


def test_a_weight_is_set(worker: Any, control: Any) -> None:
    result = reactant("set-weight", "echo", "2.5", "--url", worker.url)

    assert (result.exit_code, result.stdout) == (0, f"'echo' has weight 2.5 at {worker.url}\n")
    assert control.told == [pb.SetModelPolicyRequest(model="echo", weight=2.5)]


def test_a_residency_is_set(worker: Any, control: Any) -> None:
    result = reactant("set-residency", "echo", "device", "--url", worker.url)

    assert (result.exit_code, result.stdout) == (0, f"'echo' has residency device at {worker.url}\n")
    assert control.told == [pb.SetModelResidencyRequest(model="echo", residency="device")]


@pytest.mark.parametrize("command", [("set-weight", "ecko", "2"), ("set-residency", "ecko", "system")])
def test_an_unknown_model_gets_the_near_names(worker: Any, command: tuple[str, ...]) -> None:
    line = failure(reactant(*command, "--url", worker.url))

    assert f"no model 'ecko' at {worker.url}, did you mean 'echo'" in line


def test_what_the_worker_refuses_is_said_in_its_words(worker: Any, control: Any) -> None:
    control.fail_with = (grpc.StatusCode.UNAVAILABLE, "residency is set only in explicit mode")

    line = failure(reactant("set-residency", "echo", "device", "--url", worker.url))

    assert line == "reactant: UNAVAILABLE: residency is set only in explicit mode"


@pytest.mark.parametrize("command", [("set-weight", "echo", "much"), ("set-residency", "echo", "gpu")])
def test_values_of_another_kind_are_wrong_use(worker: Any, control: Any, command: tuple[str, ...]) -> None:
    result = reactant(*command, "--url", worker.url)

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"for '{'weight' if 'weight' in command[0] else 'residency'}'" in result.stderr
    assert not control.told


def test_compaction_says_what_came_of_it(worker: Any, control: Any) -> None:
    control.compaction = pb.CompactMemoryResponse(
        moved_bytes=1 << 20,
        bytes_in_use_before=5 << 30,
        bytes_in_use_after=4 << 30,
        largest_free_block_before=1 << 20,
        largest_free_block_after=1 << 30,
        summary="reloaded 2 models",
    )
    result = reactant("compact", "--url", worker.url)

    assert result.exit_code == 0, result.output
    for shown in ("reloaded 2 models", "5 GiB", "4 GiB", "1 MiB", "1 GiB"):
        assert shown in result.stdout
    assert json.loads(reactant("compact", "--url", worker.url, "--json").stdout)["moved_bytes"] == 1 << 20


def test_compaction_through_a_gateway_names_the_workers_that_failed(worker: Any, control: Any) -> None:
    control.compaction = pb.CompactMemoryResponse(
        summary="1 worker: nothing to move; 1 failed",
        workers=[
            pb.WorkerCompaction(worker="w0", result=pb.CompactMemoryResponse(summary="nothing to move")),
            pb.WorkerCompaction(worker="w1", error="UNAVAILABLE: the device is not there yet"),
        ],
    )
    result = reactant("compact", "--url", worker.url)

    assert (result.exit_code, result.stdout) == (1, "1 worker: nothing to move; 1 failed\n")
    assert result.stderr == (
        "reactant: 1 of 2 workers failed: w1: UNAVAILABLE: the device is not there yet\n"
    )
    document = json.loads(reactant("compact", "--url", worker.url, "--json").stdout)
    assert [one["result"] is None for one in document["workers"]] == [False, True]


def test_without_an_account_of_memory_only_the_summary(worker: Any, control: Any) -> None:
    control.compaction = pb.CompactMemoryResponse(summary="nothing to move")

    assert reactant("compact", "--url", worker.url).stdout == "nothing to move\n"


@pytest.mark.parametrize("command", [("status",), ("set-weight", "echo", "2"), ("compact",)])
def test_a_server_that_is_no_worker(server: Any, command: tuple[str, ...]) -> None:
    line = failure(reactant(*command, "--url", server.url))

    assert f"{server.url} is no worker" in line
    assert "--url localhost:8080" in line


def test_no_server() -> None:
    url = f"127.0.0.1:{free_port()}"

    assert f"no server answers at {url}" in failure(reactant("status", "--url", url))
