"""Metas on a worker that follows its folder: models and versions that come, change and go."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.busy import unique
from tests.support.client import Client, Reply
from tests.support.messages import arrays, echo, floats
from tests.support.process import ServerProcess, worker_process

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow

POLL_SECONDS = 0.1
PATIENCE = 20.0
SHIFT = np.array([1, 2, 3, 4], np.float32)
"""What `hidden` adds to its input, as its bundle is built."""


class Folder:
    """A model folder, and a worker that follows it."""

    def __init__(self, path: Path, fixtures: Path) -> None:
        self.path = path
        self._fixtures = fixtures

    def put(self, name: str, source: str | None = None) -> None:
        """Copies a fixture there, whole at once."""
        made = self.path / f".{name}"
        shutil.copytree(self._fixtures / (source or name), made)
        made.rename(self.path / name)

    def take(self, name: str) -> None:
        shutil.rmtree(self.path / name)

    def rewrite(self, file: str, old: bytes, new: bytes) -> None:
        """Puts a changed copy in a file's place."""
        path = self.path / file
        data = path.read_bytes()
        assert old in data
        path.with_suffix(".new").write_bytes(data.replace(old, new))
        os.replace(path.with_suffix(".new"), path)


@pytest.fixture
def folder(tmp_path: Path, fixtures: Path) -> Folder:
    (tmp_path / "models").mkdir()
    return Folder(tmp_path / "models", fixtures)


@pytest.fixture
def worker(tmp_path: Path, folder: Folder, cache: Path) -> Iterator[ServerProcess]:
    process = worker_process(
        [folder.path],
        log=tmp_path / f"{unique('metas')}.log",
        cache=cache,
        environ={"INFERENCE_SERVER_MODEL_POLL_SECONDS": str(POLL_SECONDS)},
    )
    with process:
        process.wait_ready()
        yield process


@pytest.fixture
def client(worker: ServerProcess) -> Iterator[Client]:
    with Client(worker.address) as connected:
        yield connected


def standing(client: Client, name: str, state: str, reason: str = "") -> None:
    """Waits until the index says so."""

    def told() -> bool:
        found = client.index().get(name, ("", ""))
        return found[0] == state and reason in found[1]

    eventually_sync(told, PATIENCE, what=f"{name} is {state} {reason}")


class TestStart:
    """A folder that holds metas without all of their models."""

    @pytest.fixture
    def folder(self, tmp_path: Path, fixtures: Path) -> Folder:
        (tmp_path / "models").mkdir()
        folder = Folder(tmp_path / "models", fixtures)
        for name in ("via_echo", "via_hidden", "hidden", "alone"):
            folder.put(name)
        # An internal model that cannot be loaded: its meta alone may say so.
        (folder.path / "hidden" / "weights.safetensors").write_bytes(b"cut short")
        return folder

    def test_it_settles_and_metas_become_ready_with_what_they_lacked(
        self, folder: Folder, worker: ServerProcess, client: Client
    ) -> None:
        index = client.index()
        assert index.keys() == {"via_echo", "via_hidden", "alone"}
        assert index["via_echo"] == ("UNAVAILABLE", "needs model 'echo', which is not there")
        state, reason = index["via_hidden"]
        assert state in ("LOADING", "UNAVAILABLE")
        assert "needs model 'hidden', which is" in reason
        assert "weights.safetensors" in reason
        assert index["alone"] == ("READY", "")
        failed = worker.get("/readyz").json()["failed"]
        assert "via_echo" in failed
        assert "hidden" not in failed

        folder.put("echo")
        folder.take("hidden")
        folder.put("hidden")

        for name in ("via_echo", "via_hidden"):
            standing(client, name, "READY")
            client.infer(echo(model=name)).ok()
        assert "hidden" not in client.index()


def test_a_models_new_weights_under_a_meta(folder: Folder, worker: ServerProcess, client: Client) -> None:
    """Each answer is of the old weights or of the new; none fails, also where stages are many."""
    folder.put("hidden")
    folder.put("via_hidden")
    standing(client, "via_hidden", "READY")
    replies: list[Reply] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            replies.append(client.infer(echo(2, model="via_hidden")))

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    try:
        eventually_sync(lambda: len(replies) > 50)
        folder.rewrite("hidden/weights.safetensors", SHIFT.tobytes(), (SHIFT * 10).tobytes())

        def newest() -> float:
            return float(arrays(replies[-1].ok())["Y"][0, 0])

        eventually_sync(lambda: newest() == 11, PATIENCE, what="the new weights serve")
    finally:
        stop.set()
        for sender in senders:
            sender.join()
    expected = [floats(2, start=1.0) + shift for shift in (SHIFT, SHIFT * 10)]
    for reply in replies:
        assert any(np.array_equal(arrays(reply.ok())["Y"], one) for one in expected)


def test_a_metas_new_version_waits_for_its_models_and_the_old_one_serves(
    folder: Folder, worker: ServerProcess, client: Client
) -> None:
    folder.put("echo")
    folder.put("m", "via_echo")
    standing(client, "m", "READY")

    folder.rewrite("m/manifest.yaml", b"calls: [echo]", b"calls: [hidden]")

    standing(client, "m", "READY", "its new version needs model 'hidden', which is not there")
    np.testing.assert_array_equal(arrays(client.infer(echo(model="m")).ok())["Y"], floats(1, start=1.0))
    assert client.ready("m")

    folder.put("hidden")

    eventually_sync(lambda: client.index()["m"] == ("READY", ""), PATIENCE, what="the new version serves")
    found = arrays(client.infer(echo(model="m")).ok())["Y"]
    np.testing.assert_array_equal(found, floats(1, start=1.0) + SHIFT)

    folder.take("hidden")

    standing(client, "m", "UNAVAILABLE", "needs model 'hidden', which is not there")
