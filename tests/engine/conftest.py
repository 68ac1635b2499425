"""Workers whose engine is under test, and the bundles that need care with time.

REACTANT_TEST_FULL=1 runs the tests about load for as long as their bars were set for; without it they are
short, and their bars allow for a machine that does other things beside.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from tests.engine.settings import (
    DELAY_SECONDS,
    EDF_QUEUE_DEPTH,
    HALF_LIFE_SECONDS,
    IDLE,
    METAS,
    MODELS,
    PROGRAMS,
    Start,
)
from tests.support.busy import steps_for, unique
from tests.support.client import Client
from tests.support.hooklog import HookLog
from tests.support.process import worker_process
from tests.support.target import Target

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def engine_bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the bundles in `bundles.py`; `light` is there under the idle models' names too."""
    folder = tmp_path_factory.mktemp("engine") / "bundles"
    built = subprocess.run(
        [sys.executable, "-m", "tests.engine.bundles", str(folder), "--programs", str(PROGRAMS)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    for name, base in MODELS.items():
        if not (folder / name).exists():
            (folder / name).symlink_to(folder / base)
    return folder


@pytest.fixture(scope="session")
def hooks_noted(workspace: Path) -> HookLog:
    """What the hooks of these workers note."""
    return HookLog(workspace / "hooks-engine.txt")


@pytest.fixture(scope="package")
def start(
    workspace: Path, fixtures: Path, engine_bundles: Path, cache: Path, hooks_noted: HookLog
) -> Iterator[Start]:
    """Starts a worker: `start(discipline, include, scheduler={...}, **environ)`."""
    with ExitStack() as stack:

        def start(
            discipline: str,
            include: tuple[str, ...],
            scheduler: dict[str, object] | None = None,
            **environ: str,
        ) -> Target:
            name = unique(f"engine-{discipline}")
            node = workspace / f"{name}.yaml"
            settings = {"discipline": discipline, **(scheduler or {})}
            node.write_text(yaml.safe_dump({"global": {"scheduler": settings}}))
            process = stack.enter_context(
                worker_process(
                    [fixtures, engine_bundles],
                    log=workspace / f"{name}.log",
                    cache=cache,
                    include=include,
                    environ={
                        **hooks_noted.environ,
                        "REACTANT_NODE_FILE": str(node),
                        "INFERENCE_SERVER_HOOK_THREADS": "8",
                        **environ,
                    },
                )
            )
            client = stack.enter_context(Client(process.address))
            process.wait_ready()
            return Target(name, process, client)

        yield start


@pytest.fixture(scope="package")
def _fair(start: Start) -> Target:
    target = start(
        "fair",
        (),
        {
            "ema_halflife_seconds": HALF_LIFE_SECONDS,
            "models": {
                "heavy": {"weight": 3.0},
                "light": {"weight": 1.0},
                "capped": {"max_batch_size": 2},
                "delayed": {"max_queue_delay_ms": 1e3 * DELAY_SECONDS},
            },
        },
        INFERENCE_SERVER_MODEL_CONTROL_MODE="explicit",
    )
    for name in ("echo", "slow", "slow_hook", "heavy", "light", *IDLE):
        target.client.load(name).ok()
    return target


@pytest.fixture
def fair(_fair: Target) -> Iterator[Target]:
    """A worker with `fair`, weights 3 for `heavy` and 1 for `light`, that loads by request only.

    `echo`, `slow`, `slow_hook`, `heavy`, `light` and the idle models are loaded; a test leaves it so.
    """
    yield _fair
    _fair.assert_well()


@pytest.fixture(scope="package")
def _edf(start: Start) -> Target:
    return start(
        "edf",
        ("echo", "slow", "light", "medium", "staged"),
        {"max_queue_depth": EDF_QUEUE_DEPTH},
        INFERENCE_SERVER_LOG_LEVEL="debug",
    )


@pytest.fixture
def edf(_edf: Target) -> Iterator[Target]:
    """A worker with `edf` and a bound of `EDF_QUEUE_DEPTH` on each queue, which logs every answer."""
    yield _edf
    _edf.assert_well()


@pytest.fixture(params=["fair", "edf"])
def either(request: pytest.FixtureRequest) -> Target:
    """A worker of each discipline; `echo`, `slow` and `light` are loaded."""
    target: Target = request.getfixturevalue(request.param)
    return target


@pytest.fixture(scope="package")
def steps_of(_fair: Target) -> int:
    """Steps of `slow` that keep the device busy for 0.8 s or a little more."""
    return steps_for(0.8, _fair.client)


@pytest.fixture
def with_metas(fair: Target) -> Iterator[Target]:
    """The worker with two metas: `via_echo`, and `staged`, which has many stages over `slow`."""
    for name in METAS:
        fair.client.load(name).ok()
    yield fair
    for name in METAS:
        fair.client.unload(name).ok()
