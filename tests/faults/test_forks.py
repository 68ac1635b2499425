"""Hooks that fork and run programs while they are loaded, in a worker that serves (case M7)."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from tests.support.busy import unique
from tests.support.client import Client, Reply
from tests.support.messages import echo
from tests.support.process import worker_process

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow

SETUP = """
import os, subprocess, sys

def setup(bundle):
    subprocess.run([sys.executable, "-c", ""], check=True)
    child = os.fork()
    if child == 0:
        {child}
    os.waitpid(child, 0)
    subprocess.run(["/bin/true"], check=True)

def preprocess(inputs, request):
    return inputs
"""
CHILDREN = {
    "that ends itself": "os._exit(0)",
    "that returns as if it were the server": "return",
    "that raises": "raise OSError('in the child')",
}
SLOWEST_SECONDS = 2.0
"""A machine that does other things beside, and forks a process of a gigabyte."""


def test_m7_loads_that_fork_under_traffic(tmp_path: Path, fixtures: Path, cache: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "echo").symlink_to(fixtures / "echo")
    for index, child in enumerate(CHILDREN.values()):
        bundle = models / f"forks{index}"
        bundle.mkdir()
        for file in (fixtures / "hook_faults").iterdir():
            (bundle / file.name).symlink_to(file)
        (bundle / "model.py").unlink()
        (bundle / "model.py").write_text(SETUP.format(child=child))
    worker = worker_process(
        [models],
        log=tmp_path / f"{unique('forks')}.log",
        cache=cache,
        environ={"INFERENCE_SERVER_MODEL_CONTROL_MODE": "explicit"},
    )
    replies: list[Reply] = []
    stop = threading.Event()
    with worker, Client(worker.address) as client:
        worker.wait_ready()
        client.load("echo").ok()

        def send() -> None:
            while not stop.wait(0.02):
                replies.append(client.infer(echo()))

        sender = threading.Thread(target=send)
        sender.start()
        try:
            for _ in range(3):
                for index in range(len(CHILDREN)):
                    client.load(f"forks{index}", timeout=30).ok()
                    client.infer(echo(model=f"forks{index}")).ok()
                    client.unload(f"forks{index}").ok()
        finally:
            stop.set()
            sender.join()
        for reply in replies:
            reply.ok()
        assert max(reply.seconds for reply in replies) < SLOWEST_SECONDS
        # Nothing that was forked keeps the ports.
        worker.signal(signal.SIGKILL)
        worker.wait()
    with worker, Client(worker.address) as client:
        worker.wait_ready()
        client.load("echo").ok()
        eventually_sync(lambda: client.infer(echo()).response is not None, 5)
