"""A model on more than one worker: set while it serves, shared evenly, spread or in runs."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from tests.packing.control import ALL, Control, command, failure
from tests.packing.settings import EVEN, FULL, LARGEST, SECONDS, WORKER_NAMES
from tests.packing.traffic import Callers, Traffic, bursts, median
from tests.packing.view import Watch, homes, page_of
from tests.support.client import Client
from tests.support.messages import echo
from tests.support.node_process import NodeProcess

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow

LOW = 2
"""Requests at once of a client at low concurrency."""
ROUNDS, ANSWERS = (10, 100) if FULL else (6, 40)


@pytest.fixture
def twice(packed: NodeProcess, control: Control, rarely: None) -> Iterator[frozenset[str]]:
    """The workers of `hot`, which has two replicas as long as a test runs."""
    control.place("hot", 2)
    yield eventually_sync(lambda: two_homes(packed), 5, what="two homes")
    control.set_policy(routing_fill_mode="run")
    control.place("hot", 1, fill_mode="run", fill_factor=1.0)


def two_homes(node: NodeProcess) -> frozenset[str]:
    """Of `hot`; nothing while it has not as many."""
    found = homes(page_of(node))["hot"]
    return found if len(found) == 2 else frozenset()


@pytest.fixture
def once(control: Control) -> Iterator[None]:
    """`hot` has one replica again when a test has ended, however it did."""
    yield
    control.place("hot", 1)


def test_replicas_are_set_while_it_serves(
    packed: NodeProcess, control: Control, rarely: None, once: None
) -> None:
    """While everything is asked. What both get is even to within a run where nothing else keeps one of them
    busier than the other."""
    plan = bursts()
    with Traffic(packed.address, plan) as traffic:
        traffic.go_on(0.5)
        said = command("gateway", "set-replicas", "hot", "2", "--url", packed.address)
        assert said.code == 0, said.err
        placed = eventually_sync(lambda: two_homes(packed), 5, what="two homes")
        # What was sent to its one home is not counted with the rest.
        traffic.change({})
        eventually_sync(lambda: all(map(traffic.all_ended, plan)), 20, what="nothing is outstanding")
        before, watch = traffic.sent["hot"], Watch(packed)
        traffic.change({"hot": plan["hot"]})
        traffic.go_on(SECONDS)
    traffic.assert_all_right()
    sent = traffic.sent["hot"] - before
    window = watch.after(lambda window: window.rows(model="hot") >= sent, 10, "all rows are counted")
    found = window.rows_by_worker(WORKER_NAMES, "hot")
    print(f"rows of `hot`: {found}")
    assert found.keys() == placed
    assert max(found.values()) - min(found.values()) <= LARGEST, found


def test_both_replicas_get_requests_of_a_client_at_low_concurrency(
    packed: NodeProcess, twice: frozenset[str]
) -> None:
    """Runs end early where nothing is in flight; the shares are even all the same."""
    watch = Watch(packed)
    with Callers(packed.address, LOW, lambda number: echo(model="hot", start=number)) as callers:
        eventually_sync(lambda: len(callers.seconds) >= 100, 60, what="enough answers")
    assert not callers.failures
    sent = len(callers.seconds)
    window = watch.after(lambda window: window.rows(model="hot") >= sent, 10, "all rows are counted")
    found = window.rows_by_worker(WORKER_NAMES, "hot")
    print(f"rows of `hot` at low concurrency: {found}")
    assert found.keys() == twice
    assert max(found.values()) - min(found.values()) <= LARGEST, found


def test_spread_is_quicker_for_a_client_at_low_concurrency(
    packed: NodeProcess, control: Control, twice: frozenset[str]
) -> None:
    seconds: dict[str, list[float]] = {"run": [], "spread": []}
    for number in range(ROUNDS):
        for mode in sorted(seconds, reverse=number % 2 == 1):
            control.place("hot", fill_mode=mode)
            with Callers(packed.address, LOW, lambda number: echo(model="hot", start=number)) as callers:
                eventually_sync(lambda: len(callers.seconds) >= ANSWERS, 60, what="enough answers")
            assert not callers.failures
            seconds[mode] += callers.seconds
    run, spread = median(seconds["run"]), median(seconds["spread"])
    print(f"p50 {1e3 * run:.1f} ms in runs, {1e3 * spread:.1f} ms spread, {spread / run:.2f} of it")
    assert spread < 0.85 * run


def test_runs_close_per_request_where_each_is_a_full_batch(
    packed: NodeProcess, client: Client, twice: frozenset[str]
) -> None:
    """A client that fills batches itself: each goes to the other replica, and is an execution."""
    for rounds in range(1, 6):
        watch = Watch(packed)
        for number in range(2):
            client.infer(echo(LARGEST, model="hot", start=float(rounds + number))).ok()
        window = watch.after(lambda window: window.rows() >= 2 * LARGEST, 10, "all rows are counted")
        found = window.rows_by_worker(WORKER_NAMES, "hot")
        assert found == dict.fromkeys(twice, LARGEST)
        assert window.dispatches(model="hot") == 2


def test_the_load_of_full_batches_is_even(packed: NodeProcess, twice: frozenset[str]) -> None:
    """Several such clients at a time."""
    watch = Watch(packed)
    with Callers(packed.address, 4, lambda number: echo(LARGEST, model="hot", start=number)) as callers:
        eventually_sync(lambda: len(callers.seconds) >= 60, 60, what="enough answers")
    assert not callers.failures
    sent = len(callers.seconds) * LARGEST
    window = watch.after(lambda window: window.rows() >= sent, 10, "all rows are counted")
    found = window.rows_by_worker(WORKER_NAMES, "hot")
    assert found.keys() == twice
    print(f"rows of `hot` in full batches: {found}")
    # The one that is quicker at it may be given a little more.
    assert max(found.values()) <= EVEN * sent / 2 + LARGEST, found
    # No two of them went together: a full batch is one.
    assert window.dispatches(model="hot") == len(callers.seconds)


@pytest.mark.parametrize("wanted", [100, ALL], ids=["100", "all"])
def test_more_replicas_than_workers_are_all_of_them(
    packed: NodeProcess, control: Control, client: Client, wanted: object
) -> None:
    answer = control.place("m05", wanted)  # type: ignore[arg-type]
    assert not answer.persisted
    eventually_sync(lambda: homes(page_of(packed))["m05"] == set(WORKER_NAMES), 5, what="a home everywhere")
    assert control.model("m05").replicas == answer.placement.replicas
    watch = Watch(packed)
    for _ in range(2 * len(WORKER_NAMES)):
        client.infer(echo(LARGEST, model="m05")).ok()
    sent = 2 * len(WORKER_NAMES) * LARGEST
    window = watch.after(lambda window: window.rows() >= sent, 10, "all rows are counted")
    found = window.rows_by_worker(WORKER_NAMES, "m05")
    assert found.keys() == set(WORKER_NAMES)
    assert max(found.values()) - min(found.values()) <= LARGEST, found
    control.place("m05", 1)


def test_a_model_that_no_worker_has(packed: NodeProcess, control: Control) -> None:
    before = control.status()
    with pytest.raises(grpc.RpcError) as refused:
        control.place("hto", 2)
    error = failure(refused.value)
    assert error.code is grpc.StatusCode.NOT_FOUND
    assert "hto" in error.details
    assert [model.name for model in control.status().models] == [model.name for model in before.models]

    answer = control.place("to-come", 2, allow_unknown=True)
    assert not answer.persisted
    assert (answer.placement.name, answer.placement.replicas.count) == ("to-come", 2)
    assert not homes(page_of(packed)).get("to-come")
