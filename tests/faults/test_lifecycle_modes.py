"""What each model control mode does with bundles that come, and with loads and unloads that meet."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from tests.support.client import Client
from tests.support.messages import echo
from tests.support.process import worker_process
from tests.support.target import Target
from tests.support.versions import all_of, answered, ask, write

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = pytest.mark.slow

_WAITING_SETUP = """
import os, pathlib, time

_setup, _gate = setup, pathlib.Path(os.environ["FIXTURE_GATE"])

def setup(bundle):
    _gate.with_suffix(".begun").touch()
    while not _gate.exists():
        time.sleep(0.01)
    _setup(bundle)
"""


@contextmanager
def worker(models: Path, mode: str, cache: Path, gate: Path | None = None) -> Iterator[Target]:
    """A worker that listens, ready or not; `gate` is the file that the `gate` model waits for."""
    process = worker_process(
        [models],
        log=models.parent / "worker.log",
        cache=cache,
        environ={
            "INFERENCE_SERVER_MODEL_CONTROL_MODE": mode,
            "INFERENCE_SERVER_MODEL_POLL_SECONDS": "0.1",
            **({} if gate is None else {"FIXTURE_GATE": str(gate)}),
        },
    )
    with process, Client(process.address) as client:
        process.wait_listening()
        yield Target(mode, process, client)


@pytest.fixture
def models(tmp_path: Path, fixtures: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copytree(fixtures / "echo", folder / "echo")
    return folder


def test_static_keeps_the_set_it_started_with(models: Path, fixtures: Path, cache: Path) -> None:
    write(fixtures, models / "m", all_of(1))
    with worker(models, "static", cache) as target:
        target.process.wait_ready()
        write(fixtures, models / "late", all_of(1))
        shutil.rmtree(models / "m")
        write(fixtures, models / "m", all_of(2))
        shutil.rmtree(models / "echo")

        eventually_sync(lambda: "late" in target.client.index())
        state, reason = target.client.index()["late"]
        assert (state, "start" in reason) == ("UNAVAILABLE", True)
        assert target.client.infer(ask("late")).code is grpc.StatusCode.NOT_FOUND
        # As long as a worker that follows would need a few times over.
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert answered(target.client.infer(ask("m"))) == all_of(1)
        target.assert_well()


def test_what_comes_during_the_start_is_not_missed(models: Path, fixtures: Path, cache: Path) -> None:
    """One start-up model waits at a gate; meanwhile a bundle comes and another one changes."""
    gate = models.parent / "open"
    shutil.copytree(fixtures / "gate", models / "gate")
    write(fixtures, models / "m", all_of(1))
    with worker(models, "dynamic", cache, gate) as target:
        eventually_sync(lambda: target.client.index().get("m") == ("READY", ""), 30)
        write(fixtures, models / "late", all_of(1))
        shutil.rmtree(models / "m")
        write(fixtures, models / "m", all_of(2))
        assert target.process.get("/readyz").status == 503

        gate.touch()

        target.process.wait_ready()
        eventually_sync(lambda: answered(target.client.infer(ask("late"))) == all_of(1), 20)
        eventually_sync(lambda: answered(target.client.infer(ask("m"))) == all_of(2), 20)
        assert target.process.get("/readyz").json()["models"] == {"total": 3, "ready": 3, "failed": 0}
        target.assert_well()


def test_explicit_loads_that_meet(models: Path, fixtures: Path, cache: Path) -> None:
    gate = models.parent / "open"
    shutil.copytree(fixtures / "gate", models / "gate")
    with worker(models, "explicit", cache, gate) as target:
        client = target.client
        target.process.wait_ready()
        client.load("echo").ok()

        # Two loads at once are one.
        loads = [client.start("RepositoryModelLoad", _load("gate")) for _ in range(2)]
        eventually_sync(lambda: client.index()["gate"][0] == "LOADING")
        # A model that never finishes its `setup` can be unloaded: who loads it is told.
        client.unload("gate").ok()
        # The second request may have come after that.
        eventually_sync(lambda: all(load.done() for load in loads) or not client.unload("gate"))
        for load in loads:
            refused = load.reply()
            assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
            assert "given up" in refused.details
        assert "gate" not in client.index(ready=True)
        assert client.infer(echo(model="gate")).code is grpc.StatusCode.NOT_FOUND

        loads = [client.start("RepositoryModelLoad", _load("gate")) for _ in range(2)]
        eventually_sync(lambda: client.index()["gate"][0] == "LOADING")
        gate.touch()
        for load in loads:
            load.reply().ok()
        client.infer(echo(model="gate")).ok()
        assert _ready_events(target, "gate") == 1

        # What serves already is not loaded again.
        compiled = target.page().value("worker_compile_cache_hits_total")
        client.load("gate").ok()
        assert _ready_events(target, "gate") == 1
        os.utime(models / "gate" / "model.py")
        client.load("gate").ok()
        assert _ready_events(target, "gate") == 2
        assert target.page().value("worker_compile_cache_hits_total") == compiled
        client.infer(echo(model="gate")).ok()
        target.assert_well()


def test_explicit_reload_takes_what_changed_and_keeps_what_serves_when_it_is_broken(
    models: Path, fixtures: Path, cache: Path
) -> None:
    path = write(fixtures, models / "m", all_of(1))
    with worker(models, "explicit", cache) as target:
        client = target.client
        target.process.wait_ready()
        client.load("echo").ok()
        client.load("m").ok()
        shutil.rmtree(path)
        write(fixtures, path, all_of(2))
        assert answered(client.infer(ask("m"))) == all_of(1), "only a load by request takes it"
        client.load("m").ok()
        assert answered(client.infer(ask("m"))) == all_of(2)

        weights = (path / "weights.safetensors").read_bytes()
        (path / "weights.safetensors").write_bytes(weights[:20])
        assert client.load("m").code is grpc.StatusCode.FAILED_PRECONDITION
        state, reason = client.index()["m"]
        assert (state, "weights.safetensors" in reason) == ("READY", True)
        assert answered(client.infer(ask("m"))) == all_of(2)
        (path / "weights.safetensors").write_bytes(weights)
        client.load("m").ok()
        assert client.index()["m"] == ("READY", "")
        target.assert_well()


def test_what_changes_during_a_load_is_never_served_as_a_mix(
    models: Path, fixtures: Path, cache: Path
) -> None:
    """The weights are replaced while `setup` waits, by when the old ones have been read."""
    gate = models.parent / "open"
    path = write(fixtures, models / "m", all_of(1))
    with (path / "model.py").open("a") as file:
        file.write(_WAITING_SETUP)
    with worker(models, "explicit", cache, gate) as target:
        client = target.client
        target.process.wait_ready()
        client.load("echo").ok()
        load = client.start("RepositoryModelLoad", _load("m"))
        eventually_sync(gate.with_suffix(".begun").exists, 20)
        shutil.copy(fixtures / "version_2" / "weights.safetensors", path)
        gate.touch()

        refused = load.reply()

        assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
        assert "weights.safetensors" in refused.details
        assert client.infer(ask("m")).code is grpc.StatusCode.UNAVAILABLE
        client.load("m").ok()
        assert answered(client.infer(ask("m"))) == replace(all_of(1), weights=2)
        target.assert_well()


def _load(model: str) -> pb.RepositoryModelLoadRequest:
    return pb.RepositoryModelLoadRequest(model_name=model)


def _ready_events(target: Target, model: str) -> int:
    return sum(e.get("event") == "model ready" and e["model"] == model for e in target.process.events())
