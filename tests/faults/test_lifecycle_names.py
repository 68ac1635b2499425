"""Names that need care, as directories of a repository that is followed and in requests (case L4)."""

from __future__ import annotations

import os
import shutil
import subprocess
import unicodedata
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.support.client import Client
from tests.support.messages import arrays, echo, floats
from tests.support.process import worker_process
from tests.support.settings import ODD_NAMES
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

pytestmark = pytest.mark.slow

OUTSIDE = "outside"
ESCAPES = (
    "..",
    ".",
    "../outside",
    "a/../../outside",
    "/etc",
    "%2e%2e/outside",
    "outside",
    "",
    "echo\0",
    "echo/.",
)
REFUSALS = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Path:
    """A repository with a sound bundle right beside it."""
    folder = tmp_path_factory.mktemp("names")
    shutil.copytree(fixtures / "echo", folder / OUTSIDE)
    shutil.copytree(fixtures / "echo", folder / "models" / "echo")
    return folder / "models"


@pytest.fixture(scope="module")
def target(models: Path, cache: Path) -> Iterator[Target]:
    process = worker_process(
        [models],
        log=models.parent / "worker.log",
        cache=cache,
        environ={"INFERENCE_SERVER_MODEL_POLL_SECONDS": "0.1"},
    )
    with process, Client(process.address) as client:
        process.wait_ready()
        yield Target("dynamic", process, client)


def serves(target: Target, model: str) -> bool:
    reply = target.client.infer(echo(2, model=model))
    return reply.code is grpc.StatusCode.OK and np.array_equal(
        arrays(reply.response)["Y"], floats(2, start=1.0)
    )


def test_l4_unusual_names_come_serve_and_go(target: Target, models: Path, fixtures: Path) -> None:
    client = target.client
    for name in ODD_NAMES:
        shutil.copytree(fixtures / "echo", models / name)
    for name in ODD_NAMES:
        eventually_sync(partial(serves, target, name), 20, what=f"{name!r} serves")
        assert client.ready(name)
        assert client.call("ModelMetadata", pb.ModelMetadataRequest(name=name)).ok().name == name
        (statistics,) = client.call("ModelStatistics", pb.ModelStatisticsRequest(name=name)).ok().model_stats
        assert (statistics.name, statistics.inference_count) == (name, 2)
        assert target.page().value("worker_requests_total", model=name, code="OK") == 1
    assert client.index() == dict.fromkeys((*ODD_NAMES, "echo"), ("READY", ""))

    # From one unusual name to the next.
    (models / ODD_NAMES[0]).rename(models / f"{ODD_NAMES[1]} 2")
    eventually_sync(lambda: serves(target, f"{ODD_NAMES[1]} 2"), 20)
    for path in models.iterdir():
        if path.name != "echo":
            shutil.rmtree(path)
    eventually_sync(lambda: client.index() == {"echo": ("READY", "")}, 20)
    assert target.page().labels("model") <= {"echo", ""}
    target.assert_well()


def test_l4_two_spellings_are_two_names(target: Target, models: Path, fixtures: Path) -> None:
    """Neither the server nor the disk takes one for the other."""
    composed, decomposed = (unicodedata.normalize(form, "été") for form in ("NFC", "NFD"))
    shutil.copytree(fixtures / "echo", models / composed)
    eventually_sync(lambda: serves(target, composed), 20)
    assert target.client.infer(echo(model=decomposed)).code is grpc.StatusCode.NOT_FOUND
    shutil.rmtree(models / composed)
    eventually_sync(lambda: composed not in target.client.index(), 20)


def test_l4_directories_that_can_be_no_model(target: Target, models: Path, fixtures: Path) -> None:
    """They are passed over, and stop nothing."""
    odd = [models / os.fsdecode(name) for name in (b"\xff\xfe", b".hidden")]
    for path in odd:
        shutil.copytree(fixtures / "echo", path)
    shutil.copytree(fixtures / "echo", models / "after")

    eventually_sync(lambda: serves(target, "after"), 20)

    assert target.client.index().keys() == {"echo", "after"}
    for path in (*odd, models / "after"):
        shutil.rmtree(path)
    eventually_sync(lambda: target.client.index().keys() == {"echo"}, 20)


@pytest.mark.parametrize("name", ESCAPES)
def test_l4_no_name_leads_out_of_the_repository(target: Target, name: str) -> None:
    client = target.client

    assert client.infer(echo(model=name)).code in REFUSALS
    for rpc, request in (
        ("ModelMetadata", pb.ModelMetadataRequest(name=name)),
        ("ModelReady", pb.ModelReadyRequest(name=name)),
        ("ModelConfig", pb.ModelConfigRequest(name=name)),
    ):
        assert client.call(rpc, request).code in REFUSALS
    assert client.index().keys() == {"echo"}
    assert not target.page().labels("model") - {"echo", ""}


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_l4_a_load_by_request_opens_nothing_outside(models: Path, cache: Path, tmp_path: Path) -> None:
    """By what the kernel saw: the load of an honest name, so the trace works, and nothing of the others."""
    trace = tmp_path / "trace.txt"
    process = worker_process(
        [models],
        log=tmp_path / "worker.log",
        cache=cache,
        environ={"INFERENCE_SERVER_MODEL_CONTROL_MODE": "explicit"},
    )
    with process, Client(process.address) as client:
        process.wait_ready()
        command = ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=%file", "-o", str(trace)]
        tracer = subprocess.Popen([*command, "-p", str(process.pid)], stderr=subprocess.DEVNULL)
        try:
            eventually_sync(lambda: client.index() and trace.exists() and trace.stat().st_size)
            for name in ESCAPES:
                assert client.load(name).code in REFUSALS
                assert client.unload(name).code in REFUSALS
                assert client.infer(echo(model=name)).code in REFUSALS
            client.load("echo").ok()
        finally:
            tracer.terminate()
            tracer.wait()

    seen = trace.read_text(errors="replace")
    assert str(models / "echo" / "manifest.yaml") in seen
    assert str(models.parent / OUTSIDE) not in seen
    assert f"{models}/.." not in seen
    assert '"/etc/manifest.yaml"' not in seen
