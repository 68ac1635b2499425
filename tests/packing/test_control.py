"""GatewayControlService and the command over it: what is refused, and that nothing of it was applied."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.packing.control import Control, command, failure
from tests.packing.settings import BUDGET, COSTS, WORKER_NAMES
from tests.packing.view import homes, page_of, repacks
from tests.support.node_process import NodeProcess
from tests.support.process import HOST

from reactant_proto import gateway_pb2 as gpb

pytestmark = pytest.mark.slow

INVALID_ARGUMENT = grpc.StatusCode.INVALID_ARGUMENT


def test_the_status_agrees_with_the_metrics_page(packed: NodeProcess, control: Control) -> None:
    status, placed = control.status(), homes(page_of(packed))
    assert status.placed
    assert not status.persisted
    assert {model.name: set(model.homes) for model in status.models if model.name in COSTS} == placed
    assert {model.name for model in status.models} >= COSTS.keys()
    assert [worker.name for worker in status.workers] == list(WORKER_NAMES)
    for worker in status.workers:
        assert (worker.ready, worker.discipline) == (True, "fifo")
        assert worker.homes == sum(worker.name in workers for workers in placed.values())
    policy = status.policy
    assert (policy.mode, policy.default_replicas.count, policy.routing_fill_mode) == ("lpt_packing", 1, "run")
    assert policy.rebalance_compute_seconds == BUDGET.later
    assert policy.hysteresis == pytest.approx(0.1)
    assert 0 <= status.compute_seconds_until_repack <= max(BUDGET.first, BUDGET.later)
    assert sum(status.repacks.values()) == repacks(page_of(packed))
    assert status.last_repack.placed == len(COSTS)


@pytest.mark.parametrize(
    ("also", "fields", "named"),
    [
        pytest.param(
            (), {"hysteresis": 0.3, "routing_fill_mode": "spred"}, ("routing_fill_mode", "spread"), id="value"
        ),
        pytest.param(
            (),
            {"routing_policy": "fill_rr", "hysteresis": -1.0, "rebalance_compute_seconds": 0.0},
            ("hysteresis", "rebalance_compute_seconds"),
            id="two-values",
        ),
        pytest.param(("fill_mode",), {"hysteresis": 0.3}, ("fill_mode",), id="path"),
        pytest.param(
            ("models",), {"hysteresis": 0.3, "mode": "packing"}, ("models", "mode", "lpt_packing"), id="both"
        ),
        pytest.param(
            ("default_replicas",), {"hysteresis": 0.3}, ("default_replicas",), id="replicas-without-a-choice"
        ),
        pytest.param((), {"hysteresis": float("nan")}, ("hysteresis",), id="nan"),
        pytest.param((), {"default_replicas": gpb.Replicas(count=0)}, ("default_replicas",), id="none"),
        pytest.param((), {}, ("update_mask",), id="nothing"),
    ],
)
def test_one_bad_field_among_good_ones(
    packed: NodeProcess,
    control: Control,
    rarely: None,
    also: tuple[str, ...],
    fields: dict[str, Any],
    named: tuple[str, ...],
) -> None:
    before, placed, done = control.status().policy, homes(page_of(packed)), repacks(page_of(packed))
    with pytest.raises(grpc.RpcError) as refused:
        control.set_policy(*also, **fields)
    error = failure(refused.value)
    assert error.code is INVALID_ARGUMENT
    assert all(name in error.details for name in named), error.details
    assert control.status().policy == before
    # Nor is a part of it left for the next change to bring in.
    assert control.set_policy(work_basis=before.work_basis).policy == before
    assert (homes(page_of(packed)), repacks(page_of(packed))) == (placed, done)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        pytest.param({"replicas": 2, "fill_mode": "spred"}, ("fill_mode", "spread"), id="fill-mode"),
        pytest.param({"replicas": 2, "fill_factor": 0.0}, ("fill_factor",), id="fill-factor"),
        pytest.param({"replicas": 0, "fill_mode": "spread"}, ("replicas",), id="no-replicas"),
        pytest.param({}, (), id="nothing"),
    ],
)
def test_one_bad_field_of_a_model(
    control: Control, rarely: None, fields: dict[str, Any], named: tuple[str, ...]
) -> None:
    before = control.model("hot")
    with pytest.raises(grpc.RpcError) as refused:
        control.place("hot", **fields)
    error = failure(refused.value)
    assert error.code is INVALID_ARGUMENT
    assert all(name in error.details for name in named), error.details
    after = control.model("hot")
    assert (after.replicas, after.homes, after.fill_mode, after.fill_factor, after.own_settings) == (
        before.replicas,
        before.homes,
        before.fill_mode,
        before.fill_factor,
        before.own_settings,
    )


def test_good_fields_are_applied_together_and_told(control: Control) -> None:
    before = control.status().policy
    answer = control.set_policy(hysteresis=0.25, routing_policy="fill_rr", compaction_mode="off")
    assert not answer.persisted
    assert (answer.policy.hysteresis, answer.policy.routing_policy) == (0.25, "fill_rr")
    assert control.status().policy == answer.policy
    back = control.set_policy(hysteresis=0.1, routing_policy="fill_least", compaction_mode="eager")
    assert back.policy == before


def test_a_repack_outside_of_packing(control: Control) -> None:
    control.set_policy(mode="least_outstanding")
    try:
        with pytest.raises(grpc.RpcError) as refused:
            control.repack()
        error = failure(refused.value)
        assert error.code is grpc.StatusCode.FAILED_PRECONDITION
        assert "lpt_packing" in error.details
        assert not control.status().placed
    finally:
        control.set_policy(mode="lpt_packing")


def test_a_person_reads_where_models_are(packed: NodeProcess, control: Control, rarely: None) -> None:
    said = command("gateway", "status", "--url", packed.address)
    assert said.code == 0, said.err
    for name in (*COSTS, *WORKER_NAMES, "lpt_packing", "fifo"):
        assert name in said.out
    found = command("gateway", "status", "--json", "--url", packed.address).json()
    status = control.status()
    assert {model["name"]: model["homes"] for model in found["models"]} == {
        model.name: list(model.homes) for model in status.models
    }


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        pytest.param(("set-replicas", "hto", "2"), "hto", id="model"),
        pytest.param(("set-policy", "hysteresis=7"), "hysteresis", id="value"),
    ],
)
def test_what_the_command_refuses(packed: NodeProcess, arguments: tuple[str, ...], named: str) -> None:
    said = command("gateway", *arguments, "--url", packed.address)
    assert said.code in (1, 2)
    assert named in said.err
    assert "Traceback" not in said.err
    assert not said.out.strip()


def test_a_worker_is_no_gateway(packed: NodeProcess) -> None:
    said = command("gateway", "status", "--url", f"{HOST}:{packed.ports.base}")
    assert said.code == 1
    assert len(said.err.strip().splitlines()) == 1, said.err
    assert "gateway" in said.err
