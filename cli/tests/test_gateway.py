from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner, Result

from reactant_cli.main import app
from reactant_core.testing import free_port
from reactant_proto import gateway_pb2 as pb

RUNNER = CliRunner()

ALL = pb.Replicas(all=True)
ONE = pb.Replicas(count=1)
POLICY = pb.SchedulingPolicy(
    mode="lpt_packing",
    work_basis="compute",
    default_replicas=ONE,
    rebalance_compute_seconds=300,
    hysteresis=0.1,
    routing_fill_mode="run",
    routing_fill_factor=1,
    routing_policy="fill_least",
    compaction_mode="eager",
    compaction_interval=1,
)
REPORT = pb.RepackReport(
    trigger="compute",
    placed=3,
    held=4,
    best_gain=0.042,
    bytes_moved=3 << 20,
    imbalance_before=1.84,
    imbalance_after=1.02,
    moves=[pb.Move(model="hot", gone=["w1"], new=["w0"], bytes=3 << 20, reason="balance")],
)


def packed(
    *models: pb.ModelPlacement, workers: tuple[str, ...] = ("w0", "w1")
) -> pb.GetSchedulingStatusResponse:
    """The status of a gateway that packs `models`."""
    return pb.GetSchedulingStatusResponse(
        policy=POLICY,
        workers=[
            pb.WorkerLoad(
                name=name,
                ready=True,
                discipline="fifo",
                homes=2,
                compute_share=0.615,
                weight_bytes=12 << 20,
                weight_budget_bytes=40 << 20,
                memory_share=0.3,
                requests_in_flight=7,
            )
            for name in workers
        ],
        models=models,
        placed=True,
        last_repack=REPORT,
        last_repack_seconds_ago=200,
        repacks={"compute": 3, "start": 1},
        compute_seconds_until_repack=212.44,
        warnings=["several gateways place independently"],
    )


HOT = pb.ModelPlacement(
    name="hot",
    replicas=pb.Replicas(count=2),
    homes=["w0", "w1"],
    demand=0.5,
    seconds_per_item=0.00125,
    weight_bytes=3 << 20,
    fill_mode="run",
    fill_factor=1,
    fill_quantum=32,
    requests_in_flight=9,
)
COLD = pb.ModelPlacement(name="cold", replicas=ALL, homes=["w1"], demand=0.004, fill_mode="spread")


def reactant(*arguments: str) -> Result:
    return RUNNER.invoke(app, ["gateway", *arguments])


def failure(result: Result, exit_code: int = 1) -> str:
    """The one line on standard error; nothing else may have been printed."""
    assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
    (line,) = result.stderr.splitlines()
    return line


def row(result: Result, first: str, more_than: int = 5) -> list[str]:
    """The cells of the one table row that begins with `first` and has more than so many."""
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in result.stdout.splitlines()]
    (found,) = [cells for cells in rows if cells[0] == first and len(cells) > more_than]
    return found


def test_status_as_tables(gateway: Any, scheduling: Any) -> None:
    scheduling.status = packed(COLD, HOT)
    result = reactant("status", "--url", gateway.url)

    assert result.exit_code == 0, result.output
    for shown in (
        "lpt_packing",
        "replicas 1, fill run × 1, fill_least, hysteresis 0.1, compaction eager",
        "3 min ago, compute: the workers had computed for long enough",
        "3 models placed, 1 moved, 3 MiB, 4 held by hysteresis; best gain 4.2 %, imbalance 1.84 → 1.02",
        "3 compute, 1 start",
        "after 212.4 s more of device time",
        "several gateways place independently",
        "evens the load, or relieves a full worker",
    ):
        assert shown in result.stdout
    assert row(result, "w0") == ["w0", "yes", "fifo", "2", "62 %", "12 MiB of 40 MiB (30 %)", "7"]
    assert row(result, "hot") == ["hot", "50 %", "2", "run 32", "1.25", "3 MiB", "25 %", "25 %", "9"]
    assert row(result, "cold") == ["cold", "0.4 %", "all", "spread 0", "", "", "", "0.4 %", "0"]
    assert result.stdout.index(" hot ") < result.stdout.index(" cold ")


def test_a_thousand_models_and_many_workers_stay_readable(gateway: Any, scheduling: Any) -> None:
    workers = tuple(f"worker{index}" for index in range(100))
    scheduling.status = packed(
        *(
            pb.ModelPlacement(name=f"m{index}", replicas=ALL, homes=workers[:6], demand=index / 1e6)
            for index in range(1000)
        ),
        workers=workers,
    )
    scheduling.status.last_repack.moves.extend(
        pb.Move(model=f"m{index}", gone=["worker1"], new=["worker2"], bytes=index) for index in range(1, 30)
    )
    result = reactant("status", "--url", gateway.url)

    assert max(map(len, result.stdout.splitlines())) <= 160
    assert "m999" in result.stdout
    assert " m979 " not in result.stdout
    assert "and 980 more models, 96 % of the load; --all shows them" in result.stdout
    assert "worker0, worker1, worker2, worker3 and 2 more" in result.stdout
    assert "and 20 more; --all shows them" in result.stdout
    assert "and 68 more workers, each loaded 62 % or less; --all shows them" in result.stdout
    # Rich takes 2 ms a row.
    del scheduling.status.models[100:]
    assert " m0 " not in reactant("status", "--url", gateway.url).stdout
    everything = reactant("status", "--url", gateway.url, "--all")
    assert " m0 " in everything.stdout
    assert "worker99 " in everything.stdout
    assert "more models" not in everything.stdout


def test_a_replica_too_few_is_said(gateway: Any, scheduling: Any) -> None:
    scheduling.status = packed(pb.ModelPlacement(name="m", replicas=pb.Replicas(count=3), homes=["w0"]))
    assert row(reactant("status", "--url", gateway.url), "m")[2] == "3 (1 placed)"


def test_status_without_packing(gateway: Any, scheduling: Any) -> None:
    scheduling.status = pb.GetSchedulingStatusResponse(
        policy=pb.SchedulingPolicy(mode="least_outstanding", work_basis="items"),
        workers=[pb.WorkerLoad(name="w0", homes=1, discipline="fair")],
        models=[pb.ModelPlacement(name="m", homes=["w0"], requests_in_flight=2)],
    )
    result = reactant("status", "--url", gateway.url)
    assert row(result, "m", 4) == ["m", "", "", "ready", "2"]
    assert "least_outstanding" in result.stdout
    for absent in ("repack", "replicas", "fill", "hysteresis", "load"):
        assert absent not in result.stdout


def test_before_the_first_placement_and_without_a_model(gateway: Any, scheduling: Any) -> None:
    scheduling.status = pb.GetSchedulingStatusResponse(policy=POLICY)
    result = reactant("status", "--url", gateway.url)
    assert "none yet: the workers are not all there" in result.stdout
    assert "no worker has a model" in result.stdout


def test_status_as_json_has_every_field(gateway: Any, scheduling: Any) -> None:
    scheduling.status = packed(HOT, COLD)
    document = json.loads(reactant("status", "--url", gateway.url, "--json").stdout)

    assert set(document) == {field.name for field in pb.GetSchedulingStatusResponse.DESCRIPTOR.fields}
    hot, cold = document["models"]
    assert (hot["replicas"], hot["homes"], hot["own_settings"]) == (2, ["w0", "w1"], False)
    assert (cold["replicas"], cold["seconds_per_item"]) == ("all", None)
    assert document["repacks"] == {"compute": 3, "start": 1}
    assert document["last_repack"]["moves"][0]["reason"] == "balance"


def test_a_policy_is_set(gateway: Any, scheduling: Any) -> None:
    result = reactant(
        "set-policy",
        *("hysteresis=0.25", "default_replicas=all", "forbid_memory_oversubscription=false"),
        *("compaction_interval=3", "routing_policy=fill_rr", "--url", gateway.url),
    )

    assert result.exit_code == 0, result.output
    (request,) = scheduling.told
    assert list(request.update_mask.paths) == [
        "hysteresis",
        "default_replicas",
        "forbid_memory_oversubscription",
        "compaction_interval",
        "routing_policy",
    ]
    assert request.policy == pb.SchedulingPolicy(
        hysteresis=0.25, default_replicas=ALL, compaction_interval=3, routing_policy="fill_rr"
    )
    assert result.stdout.splitlines()[:3] == [
        "hysteresis = 0.25",
        "default_replicas = all",
        "forbid_memory_oversubscription = false",
    ]
    assert f"in force at {gateway.url} until that gateway ends" in result.stdout


def test_everything_wrong_with_settings_is_said_and_nothing_sent(gateway: Any, scheduling: Any) -> None:
    line = failure(
        reactant(
            "set-policy",
            *("hysterisis=0.2", "mode", "models.hot=2", "hysteresis=much", "default_replicas=0", "zzz=1"),
            *("forbid_memory_oversubscription=maybe", "compaction_interval=-1", "mode=a", "mode=b"),
            *("--url", gateway.url),
        ),
        2,
    )
    for said in (
        "'hysterisis' is no setting; did you mean hysteresis?",
        "'models.hot': models are set one at a time, by `reactant gateway set-replicas`",
        "'mode': write it as key=value",
        "hysteresis: 'much'; accepted is a number",
        "default_replicas: '0'; accepted is all or a count from 1 to 100000",
        "'zzz' is no setting; known are mode, work_basis",
        "forbid_memory_oversubscription: 'maybe'; accepted is true or false",
        "compaction_interval: '-1'; accepted is a whole number",
        "mode is given twice",
    ):
        assert said in line
    assert not scheduling.told


def test_what_the_gateway_refuses_is_said_in_its_words(gateway: Any, scheduling: Any) -> None:
    scheduling.fail_with = (grpc.StatusCode.INVALID_ARGUMENT, "hysteresis = 7; accepted is a number up to 1")
    line = failure(reactant("set-policy", "hysteresis=7", "--url", gateway.url))
    assert line == "reactant: INVALID_ARGUMENT: hysteresis = 7; accepted is a number up to 1"


def test_replicas_are_set(gateway: Any, scheduling: Any) -> None:
    scheduling.placement = HOT
    result = reactant("set-replicas", "echo", "2", "--url", gateway.url)

    assert result.exit_code == 0, result.output
    assert scheduling.told == [pb.SetModelPlacementRequest(model="echo", replicas=pb.Replicas(count=2))]
    assert "'echo': replicas 2, fill run 32, on w0, w1" in result.stdout
    reactant(
        *("set-replicas", "echo", "all", "--fill-mode", "spread", "--fill-factor", "0.5"),
        *("--allow-unknown", "--url", gateway.url),
    )
    assert scheduling.told[1] == pb.SetModelPlacementRequest(
        model="echo", replicas=ALL, fill_mode="spread", fill_factor=0.5, allow_unknown=True
    )
    scheduling.placement = pb.ModelPlacement(name="echo", replicas=ONE, fill_mode="run", fill_quantum=1)
    result = reactant("set-replicas", "echo", "1", "--url", gateway.url)
    assert "'echo': replicas 1, fill run 1, on no worker yet" in result.stdout


def test_what_has_no_effect_in_the_mode_is_said(gateway: Any, scheduling: Any) -> None:
    scheduling.placement, scheduling.mode = HOT, "round_robin"
    for command in (("set-replicas", "echo", "2"), ("set-policy", "hysteresis=0.2")):
        last = reactant(*command, "--url", gateway.url).stdout.splitlines()[-1]
        assert last == "without effect while the mode is round_robin: it is for lpt_packing"
    assert "without effect" not in reactant("set-policy", "mode=round_robin", "--url", gateway.url).stdout


def test_replicas_of_an_unknown_model(gateway: Any) -> None:
    line = failure(reactant("set-replicas", "ecko", "2", "--url", gateway.url))
    assert f"no model 'ecko' at {gateway.url}, did you mean 'echo'" in line
    assert "--allow-unknown" in line


@pytest.mark.parametrize("count", ["0", "two", "1.5", "100001", "9" * 5000])
def test_a_number_of_replicas_that_is_none(gateway: Any, scheduling: Any, count: str) -> None:
    line = failure(reactant("set-replicas", "echo", count, "--url", gateway.url), 2)
    assert line.endswith("is no number of replicas; accepted is all or a count from 1 to 100000")
    assert not scheduling.told


def test_nothing_to_set(gateway: Any) -> None:
    line = failure(reactant("set-replicas", "echo", "--url", gateway.url), 2)
    assert line == "reactant: nothing to set: give a count, --fill-mode or --fill-factor"


def test_a_repack_says_what_moved_and_why(gateway: Any, scheduling: Any) -> None:
    scheduling.repack = pb.RepackResponse(done=True, report=REPORT)
    scheduling.repack.report.warnings.append("w0 is oversubscribed")
    result = reactant("repack", "--url", gateway.url)

    assert result.exit_code == 0, result.output
    assert scheduling.told == [pb.RepackRequest(wait_seconds=30)]
    assert "repacked: 3 models placed, 1 moved" in result.stdout
    assert "warning: w0 is oversubscribed" in result.stdout
    assert "evens the load" in result.stdout
    document = json.loads(reactant("repack", "--url", gateway.url, "--json").stdout)
    assert document["report"]["placed"] == 3


def test_a_repack_that_is_not_done(gateway: Any) -> None:
    line = failure(reactant("repack", "--wait", "2", "--url", gateway.url))
    assert line.startswith("reactant: not done within 2 s; it goes on")
    result = reactant("repack", "--wait", "0", "--url", gateway.url)
    assert (result.exit_code, result.stdout.split(";")[0]) == (0, "asked for")


@pytest.mark.parametrize(
    "command", [("status",), ("set-policy", "hysteresis=0.2"), ("set-replicas", "echo", "2"), ("repack",)]
)
def test_a_server_that_is_no_gateway(worker: Any, command: tuple[str, ...]) -> None:
    line = failure(reactant(*command, "--url", worker.url))
    assert (
        f"{worker.url} has no GatewayControlService: it is a worker, or a gateway of an older version" in line
    )


def test_no_server() -> None:
    url = f"127.0.0.1:{free_port()}"
    assert f"no server answers at {url}" in failure(reactant("status", "--url", url))
