"""A worker that follows its model directory: new, changed, broken, renamed and removed bundles (case L2)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import grpc
import pytest
from tests.support.busy import unique
from tests.support.client import Client
from tests.support.process import worker_process
from tests.support.target import Target
from tests.support.versions import Parts, all_of, answered, ask, write

from reactant_core.testing import eventually_sync

POLL_SECONDS = 0.1
ONE = all_of(1)


@final
@dataclass(frozen=True, slots=True)
class Followed:
    """A worker in dynamic mode, and the directory that it follows."""

    target: Target
    models: Path
    fixtures: Path

    @property
    def client(self) -> Client:
        return self.target.client

    def write(self, model: str, parts: Parts = ONE) -> Path:
        return write(self.fixtures, self.models / model, parts)

    def serve(self, model: str, parts: Parts = ONE) -> Path:
        """Writes a bundle and waits until it serves."""
        path = self.write(model, parts)
        self.wait(model, parts)
        return path

    def wait(self, model: str, parts: Parts) -> None:
        """Until the model answers with these versions."""
        eventually_sync(lambda: answered(self.client.infer(ask(model))) == parts, 20, what=f"{model} {parts}")

    def wait_index(self, model: str, state: str, *words: str) -> str:
        """Until the index says this of the model; returns the reason it gives."""

        def reason() -> str | None:
            found, text = self.client.index().get(model, ("absent", ""))
            return text or " " if found == state and all(word in text for word in words) else None

        return str(eventually_sync(reason, 20, what=f"{model} is {state} because of {words}"))

    def wait_gone(self, model: str) -> None:
        """Until the model is unknown."""
        eventually_sync(lambda: model not in self.client.index(), what=f"{model} is gone")

    def pass_looks(self) -> None:
        """Until changes that were made before this call must have been acted on: a later one has been."""
        for _ in range(2):  # the first may have been seen by the look that is under way
            name = unique("fence")
            self.serve(name)
            shutil.rmtree(self.models / name)
            self.wait_gone(name)

    def loads(self, model: str) -> int:
        """How often a version of the model came to serve."""
        events = self.target.process.events()
        return sum(e.get("event") == "model ready" and e["model"] == model for e in events)

    def reported(self, model: str) -> list[str]:
        """The reasons that the log gives for the model's not loading."""
        return [
            e["reason"] for e in self.target.process.events() if e.get("model") == model and "reason" in e
        ]

    def built(self) -> float:
        """Programs compiled, or taken from the cache on disk."""
        page = self.target.page()
        return page.value("worker_compile_cache_misses_total") + page.value("worker_compile_cache_hits_total")


@pytest.fixture(scope="module")
def followed(fixtures: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder = tmp_path_factory.mktemp("followed")
    models = folder / "models"
    models.mkdir()
    shutil.copytree(fixtures / "echo", models / "echo")
    process = worker_process(
        [models],
        log=folder / "worker.log",
        cache=cache,
        environ={"INFERENCE_SERVER_MODEL_POLL_SECONDS": str(POLL_SECONDS)},
    )
    with process, Client(process.address) as client:
        process.wait_ready()
        yield Followed(Target("dynamic", process, client), models, fixtures)


@pytest.fixture
def model() -> str:
    return unique("model")


def test_a_bundle_that_comes_is_loading_then_serves_and_one_that_goes_is_unknown(
    followed: Followed, model: str
) -> None:
    path = followed.serve(model)
    followed.wait_index(model, "READY")

    shutil.rmtree(path)

    followed.wait_gone(model)
    assert followed.client.infer(ask(model)).code is grpc.StatusCode.NOT_FOUND
    assert model not in followed.target.page().labels("model")
    followed.target.assert_well()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["weights", "hooks", "asset"])
def test_a_part_is_replaced_and_nothing_is_compiled(followed: Followed, model: str, part: str) -> None:
    path = followed.serve(model)
    built = followed.built()
    staged = write(followed.fixtures, followed.models.parent / model, replace(ONE, **{part: 2}))
    for file in staged.iterdir():
        if file.read_bytes() != (path / file.name).read_bytes():
            os.replace(file, path / file.name)

    followed.wait(model, replace(ONE, **{part: 2}))

    assert followed.loads(model) == 2
    assert followed.built() == built, "a program that serves was built again"
    assert followed.client.index()[model] == ("READY", "")


def test_a_program_is_replaced(followed: Followed, model: str) -> None:
    path = followed.serve(model)
    for file in (followed.fixtures / "version_2").glob("*.mlir"):
        shutil.copy(file, path)

    followed.wait(model, replace(ONE, program=2))


@pytest.mark.slow
def test_the_same_contents_are_not_loaded_again(followed: Followed, model: str) -> None:
    path = followed.serve(model)
    followed.pass_looks()
    for file in path.iterdir():
        os.utime(file)
    followed.pass_looks()
    copy = shutil.copytree(path, followed.models.parent / model)
    shutil.rmtree(path)
    copy.rename(path)
    followed.pass_looks()

    assert followed.loads(model) == 1
    followed.wait(model, ONE)


@pytest.mark.slow
def test_a_broken_version_leaves_the_old_one_serving_and_says_so(followed: Followed, model: str) -> None:
    path = followed.serve(model)
    followed.pass_looks()  # its contents are known, so that they are recognised when they come back
    manifest = (path / "manifest.yaml").read_text()
    (path / "manifest.yaml").write_text(manifest + "bathcing: {}\n")

    reason = followed.wait_index(model, "READY", "bathcing")

    followed.wait(model, ONE)
    followed.pass_looks()
    os.utime(path / "manifest.yaml")  # it is tried again, and is no better
    followed.pass_looks()
    assert followed.client.index()[model] == ("READY", reason)
    assert followed.reported(model) == [reason], "a reason is logged once"

    (path / "manifest.yaml").write_text(manifest)
    eventually_sync(lambda: followed.client.index()[model] == ("READY", ""))
    assert followed.loads(model) == 1, "what serves was loaded again"

    (path / "model.py").write_text("def postprocess(:\n")
    followed.wait_index(model, "READY", "SyntaxError")
    followed.wait(model, ONE)
    shutil.rmtree(path)
    followed.serve(model, all_of(2))
    assert followed.client.index()[model] == ("READY", "")


@pytest.mark.slow
@pytest.mark.parametrize("serving", [True, False], ids=["over-a-version", "new"])
@pytest.mark.parametrize("last", ["weights.safetensors", "manifest.yaml"])
def test_l2_a_copy_that_pauses_halfway(followed: Followed, model: str, last: str, serving: bool) -> None:
    """The last file stands at its first half for many polls, all others are there."""
    path = followed.models / model
    if serving:
        followed.serve(model)
    staged = write(followed.fixtures, followed.models.parent / model, all_of(2))
    data = (staged / last).read_bytes()
    path.mkdir(exist_ok=True)
    (path / last).write_bytes(data[: len(data) // 2])
    for file in staged.iterdir():
        if file.name != last:
            shutil.copy(file, path)

    reason = followed.wait_index(model, "READY" if serving else "LOADING", last)
    followed.pass_looks()

    if serving:
        followed.wait(model, ONE)
    else:
        refused = followed.client.infer(ask(model))
        assert refused.code is grpc.StatusCode.UNAVAILABLE
        assert last in refused.details
        assert not followed.client.ready(model)
    assert followed.reported(model) == [reason]

    (path / last).write_bytes(data)

    followed.wait(model, all_of(2))
    assert followed.client.index()[model] == ("READY", "")
    mentions = sum(event.get("model") == model for event in followed.target.process.events())
    assert mentions <= 8, "a flood in the log"


def test_l2_a_bundle_that_is_renamed_into_place(followed: Followed, model: str) -> None:
    hidden = write(followed.fixtures, followed.models / f".{model}", all_of(2))
    followed.pass_looks()
    assert model not in followed.client.index()

    hidden.rename(followed.models / model)

    followed.wait(model, all_of(2))


@pytest.mark.slow
def test_a_link_that_is_switched(followed: Followed, model: str) -> None:
    """As deployment tools do: the name is a link to a folder of one version."""
    store = followed.models.parent
    for version in (1, 2):
        write(followed.fixtures, store / f"{model}-{version}", all_of(version))
    link = followed.models / model
    link.symlink_to(store / f"{model}-1")
    followed.wait(model, ONE)
    (store / model).symlink_to(store / f"{model}-2")
    os.replace(store / model, link)

    followed.wait(model, all_of(2))


@pytest.mark.slow
def test_a_model_directory_that_is_away_is_not_empty(followed: Followed, model: str) -> None:
    followed.serve(model)
    away = followed.models.with_name("away")
    followed.models.rename(away)
    try:
        eventually_sync(
            lambda: any("cannot be read" in e.get("event", "") for e in followed.target.process.events())
        )
        followed.wait(model, ONE)
        assert followed.client.index()[model] == ("READY", "")
    finally:
        away.rename(followed.models)
    followed.pass_looks()

    assert followed.loads(model) == 1
    assert followed.loads("echo") == 1
    followed.target.assert_well()


@pytest.mark.slow
def test_many_at_once(followed: Followed) -> None:
    names = [unique("many") for _ in range(12)]
    for name in names:
        followed.write(name)
    for name in names:
        followed.wait(name, ONE)
    for name in names:
        shutil.rmtree(followed.models / name)
    eventually_sync(lambda: not followed.client.index().keys() & set(names))
    followed.target.assert_well()
