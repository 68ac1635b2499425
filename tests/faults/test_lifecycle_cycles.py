"""What loads and unloads leave behind: nothing.

REACTANT_TEST_FULL=1 makes the 200 cycles of the case, otherwise it is a few less.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.client import Client
from tests.support.process import ServerProcess, worker_process
from tests.support.target import Target
from tests.support.versions import all_of, answered, ask, write

from reactant_core.testing import eventually_sync

pytestmark = pytest.mark.slow

FULL = os.environ.get("REACTANT_TEST_FULL") == "1"
CYCLES, WARM_UP = (200, 20) if FULL else (60, 20)
GROWTH_BYTES = 4 << 20
"""A program, a weight set or a module that stayed behind each time would be many times that."""

COUNTS_MODULES = "len([name for name in __import__('sys').modules if name.startswith('reactant_bundle_')])"


@pytest.fixture
def explicit(fixtures: Path, cache: Path, tmp_path: Path) -> Iterator[Target]:
    """A worker that loads by request, with `echo` and `counts`; `counts` tells how many bundles have code."""
    models = tmp_path / "models"
    models.mkdir()
    for name in ("echo", "variants"):
        shutil.copytree(fixtures / name, models / name)
    write(fixtures, models / "cycled", all_of(1))
    hooks = write(fixtures, models / "counts", all_of(1)) / "model.py"
    hooks.write_text(hooks.read_text().replace("np.full(shape, VERSION", f"np.full(shape, {COUNTS_MODULES}"))
    process = worker_process(
        [models],
        log=tmp_path / "worker.log",
        cache=cache,
        environ={"INFERENCE_SERVER_MODEL_CONTROL_MODE": "explicit"},
    )
    with process, Client(process.address) as client:
        process.wait_ready()
        client.load("echo").ok()
        client.load("counts").ok()
        yield Target("explicit", process, client)


def modules(target: Target) -> int:
    """Bundles whose code the worker has in memory."""
    return answered(target.client.infer(ask("counts"))).hooks


def test_memory_is_flat(explicit: Target, tmp_path: Path) -> None:
    def cycle() -> None:
        for model in ("cycled", "variants"):
            explicit.client.load(model).ok()
        explicit.client.infer(ask("cycled")).ok()
        for model in ("cycled", "variants"):
            explicit.client.unload(model).ok()

    def reload() -> None:
        """A reload, with the files untouched but for their marks."""
        for file in (tmp_path / "models" / "counts").iterdir():
            os.utime(file)
        explicit.client.load("counts").ok()

    process = explicit.process
    assert isinstance(process, ServerProcess)

    def left() -> dict[str, object]:
        return {
            "modules": modules(explicit),
            "files": len(os.listdir(f"/proc/{process.pid}/fd")),
            "series": explicit.page().samples.keys(),
        }

    for _ in range(WARM_UP):
        cycle()
        reload()
    explicit.client.infer(ask("counts")).ok()
    eventually_sync(lambda: modules(explicit) == 1)
    before, threads, resident = left(), process.threads(), process.resident_bytes()

    for _ in range(CYCLES - WARM_UP):
        cycle()
        reload()

    eventually_sync(lambda: modules(explicit) == 1)
    assert left() == before
    assert process.threads() <= threads
    grown = process.resident_bytes() - resident
    print(f"{grown / 1024:.0f} KiB more after {CYCLES - WARM_UP} cycles of {resident >> 20} MiB")
    assert grown < GROWTH_BYTES
    explicit.assert_well()
