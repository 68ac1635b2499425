"""Renames and new versions under steady requests (case L1).

REACTANT_TEST_FULL=1 sends for as long and as fast as the case says, and follows at the default's slow pace.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from tests.support.busy import unique
from tests.support.client import Client, Reply
from tests.support.metrics import Page
from tests.support.process import worker_process
from tests.support.target import Target
from tests.support.traffic import Traffic
from tests.support.versions import Parts, all_of, answered, ask, write

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = pytest.mark.slow

FULL = os.environ.get("REACTANT_TEST_FULL") == "1"
POLL_SECONDS = 2.0 if FULL else 0.2
RATE = 100.0
L1_RATE, L1_SECONDS, L1_EVERY_SECONDS = 50.0, 30.0 if FULL else 3.0, 5.0 if FULL else 0.6
ONE, TWO = all_of(1), all_of(2)

_EXCHANGE = 2
_HERE = -100  # AT_FDCWD


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("renamed") / "models"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def target(fixtures: Path, cache: Path, models: Path) -> Iterator[Target]:
    shutil.copytree(fixtures / "echo", models / "echo")
    process = worker_process(
        [models],
        log=models.parent / "worker.log",
        cache=cache,
        environ={"INFERENCE_SERVER_MODEL_POLL_SECONDS": str(POLL_SECONDS)},
    )
    with process, Client(process.address) as client:
        process.wait_ready()
        yield Target("dynamic", process, client)


@pytest.fixture
def name() -> str:
    return unique("model")


def serve(target: Target, path: Path, fixtures: Path, parts: Parts) -> None:
    """Writes a bundle into a model directory and waits until it serves."""
    write(fixtures, path, parts)
    wait(target, path.name, parts)


def wait(target: Target, model: str, parts: Parts) -> None:
    eventually_sync(
        lambda: answered(target.client.infer(ask(model))) == parts, 30, what=f"{model} is {parts}"
    )


def versions(replies: list[Reply]) -> set[Parts]:
    """Which versions answered; none of the requests may have failed."""
    failed = [(reply.code.name, reply.details) for reply in replies if reply.code is not grpc.StatusCode.OK]
    assert not failed, failed[:3]
    return {answered(reply) for reply in replies}


def built(page: Page) -> float:
    """Programs compiled, or taken from the cache on disk."""
    return page.value("worker_compile_cache_misses_total") + page.value("worker_compile_cache_hits_total")


def ready_events(target: Target) -> int:
    return sum(event.get("event") == "model ready" for event in target.process.events())


def exchange(one: Path, other: Path) -> None:
    """Both at once, as `mv --exchange`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_HERE, bytes(one), _HERE, bytes(other), _EXCHANGE):
        pytest.skip(f"this file system exchanges no names: {os.strerror(ctypes.get_errno())}")


def test_a_staged_bundle_is_renamed_to_a_name_that_nobody_has(
    target: Target, models: Path, fixtures: Path, name: str
) -> None:
    """Clients that change to the new name when it is ready, and not before, see no error."""
    serve(target, models / f"{name}-staging", fixtures, TWO)
    before, loads = built(target.page()), ready_events(target)
    asked = [f"{name}-staging"]

    with Traffic(target.client, lambda: ask(asked[0]), RATE) as traffic:
        eventually_sync(lambda: traffic.sent >= 30)
        (models / f"{name}-staging").rename(models / name)
        eventually_sync(lambda: name in target.client.index(ready=True), 30)
        asked[0] = name
        eventually_sync(lambda: f"{name}-staging" not in target.client.index(), 30)
        sent = traffic.sent
        eventually_sync(lambda: traffic.sent >= sent + 30)

    assert versions(traffic.replies()) == {TWO}
    assert built(target.page()) == before, "a program was compiled for a new name"
    assert ready_events(target) == loads, "something was loaded for a new name"
    target.assert_well()


def test_a_staged_bundle_takes_the_place_of_another(
    target: Target, models: Path, fixtures: Path, name: str
) -> None:
    """`mv m aside && mv m-staging m`: `m` answers throughout."""
    serve(target, models / name, fixtures, ONE)
    serve(target, models / f"{name}-staging", fixtures, TWO)
    before, loads = built(target.page()), ready_events(target)

    with Traffic(target.client, lambda: ask(name), RATE) as traffic:
        eventually_sync(lambda: traffic.sent >= 30)
        (models / name).rename(models.parent / name)
        (models / f"{name}-staging").rename(models / name)
        wait(target, name, TWO)
        sent = traffic.sent
        eventually_sync(lambda: traffic.sent >= sent + 30)

    assert versions(traffic.replies()) == {ONE, TWO}
    assert built(target.page()) == before
    assert ready_events(target) == loads
    target.assert_well()


def test_two_bundles_are_exchanged(target: Target, models: Path, fixtures: Path, name: str) -> None:
    serve(target, models / name, fixtures, ONE)
    serve(target, models / f"{name}-staging", fixtures, TWO)
    before, loads = built(target.page()), ready_events(target)

    with Traffic(target.client, lambda: ask(name), RATE) as traffic:
        eventually_sync(lambda: traffic.sent >= 30)
        exchange(models / name, models / f"{name}-staging")
        wait(target, name, TWO)
        wait(target, f"{name}-staging", ONE)

    assert versions(traffic.replies()) == {ONE, TWO}
    assert built(target.page()) == before
    assert ready_events(target) == loads
    target.assert_well()


def test_weights_alone_are_replaced(target: Target, models: Path, fixtures: Path, name: str) -> None:
    """Old answers, then new ones, within three polls and the time that the load takes."""
    serve(target, models / name, fixtures, ONE)
    before = built(target.page())
    staged = models.parent / f"{name}.safetensors"
    shutil.copy(fixtures / "version_2" / "weights.safetensors", staged)

    with Traffic(target.client, lambda: ask(name), RATE) as traffic:
        eventually_sync(lambda: traffic.sent >= 30)
        replaced = time.monotonic()
        staged.rename(models / name / "weights.safetensors")
        wait(target, name, replace(ONE, weights=2))
        took = time.monotonic() - replaced
        sent = traffic.sent
        eventually_sync(lambda: traffic.sent >= sent + 30)

    assert versions(traffic.replies()) == {ONE, replace(ONE, weights=2)}
    assert built(target.page()) == before
    assert took < 3 * POLL_SECONDS + 5.0


def test_l1_versions_take_turns(target: Target, models: Path, fixtures: Path, name: str) -> None:
    """Each reply is of one version, none fails, and no counter ever falls."""
    serve(target, models / name, fixtures, ONE)
    stop = threading.Event()
    counted: list[dict[str, float]] = []

    def count() -> None:
        while not stop.wait(0.02):
            counted.append(counters(target, name))

    counting = threading.Thread(target=count, daemon=True)
    expected = ONE
    with Traffic(target.client, lambda: ask(name, rows=2), L1_RATE) as traffic:
        counting.start()
        end = time.monotonic() + L1_SECONDS
        while time.monotonic() < end:
            expected = TWO if expected == ONE else ONE
            aside = models.parent / unique("aside")
            staged = write(fixtures, models / f".{name}", expected)
            (models / name).rename(aside)
            staged.rename(models / name)
            wait(target, name, expected)
            stop.wait(L1_EVERY_SECONDS)
        stop.set()
        counting.join()

    assert versions(traffic.replies()) == {ONE, TWO}
    for earlier, later in itertools.pairwise(counted):
        fallen = {key for key, value in earlier.items() if later[key] < value}
        assert not fallen, (fallen, earlier, later)
    assert counted[-1]["worker_rows_served_total"] > counted[0]["worker_rows_served_total"]
    target.assert_well()


def test_a_request_outlasts_the_version_it_began_with(
    target: Target, models: Path, fixtures: Path, name: str
) -> None:
    """It finishes there, and until it has, what its version has done still counts."""
    serve(target, models / name, fixtures, ONE)
    versions([target.client.infer(ask(name)) for _ in range(5)])
    lasting = target.client.start_infer(ask(name, seconds=3.0))
    eventually_sync(lambda: target.executed(name) >= 6)
    before = counters(target, name)
    staged = write(fixtures, models / f".{name}", TWO)
    (models / name).rename(models.parent / name)
    staged.rename(models / name)

    wait(target, name, TWO)

    after = counters(target, name)
    assert not lasting.done(), "the request was meant to last longer"
    assert not {key for key, value in before.items() if after[key] < value}, (before, after)
    assert versions([lasting.reply()]) == {ONE}
    assert not {key for key, value in after.items() if counters(target, name)[key] < value}
    target.assert_well()


def counters(target: Target, model: str) -> dict[str, float]:
    """Everything that is counted of a model."""
    page = target.page()
    names = [
        "worker_requests_total",
        "worker_dispatch_total",
        "worker_compute_seconds_total",
        "worker_requests_served_total",
        "worker_rows_served_total",
        "worker_request_latency_seconds_count",
        "worker_queue_wait_seconds_count",
    ]
    found = {name: page.value(name, model=model) for name in names}
    request = pb.ModelStatisticsRequest(name=model)
    (statistics,) = target.client.call("ModelStatistics", request).ok().model_stats
    found["inference_count"] = statistics.inference_count
    found["execution_count"] = statistics.execution_count
    found["success"] = statistics.inference_stats.success.count
    return found
