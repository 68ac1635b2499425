"""Fixture bundles and the servers that several tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The helpers in tests/support are files of the checkout, not an installed package.
sys.path.insert(0, str(ROOT))
pytest.register_assert_rewrite("tests.support", "tests.conformance")

from tests.support.busy import unique  # noqa: E402
from tests.support.hooklog import HookLog  # noqa: E402
from tests.support.process import ServerProcess, worker_process  # noqa: E402
from tests.support.settings import EXPECTED_ERRORS, HOOK_THREADS, SHARED_MODELS, TRANSPORTS  # noqa: E402
from tests.support.shared import SharedServer  # noqa: E402
from tests.support.target import Target  # noqa: E402


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for logs and caches of this session."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model repository with every fixture bundle; do not change it."""
    folder = tmp_path_factory.mktemp("fixtures") / "bundles"
    built = subprocess.run(
        [sys.executable, "-m", "tests.support.build", str(folder)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="session")
def cache(workspace: Path) -> Path:
    """One program cache for all workers of the session."""
    return workspace / "cache"


@pytest.fixture(scope="session", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport a worker can have."""
    return str(request.param)


@pytest.fixture(scope="session")
def hook_log(workspace: Path, transport: str) -> HookLog:
    """What the hooks of the shared worker note."""
    return HookLog(workspace / f"hooks-{transport}.txt")


@pytest.fixture(scope="session")
def _server(
    workspace: Path, fixtures: Path, cache: Path, transport: str, hook_log: HookLog
) -> Iterator[SharedServer]:
    def make() -> ServerProcess:
        return worker_process(
            [fixtures],
            log=workspace / f"{unique('worker-' + transport)}.log",
            cache=cache,
            include=SHARED_MODELS,
            environ={
                **hook_log.environ,
                "INFERENCE_SERVER_ENDPOINTS_TRANSPORT": transport,
                "INFERENCE_SERVER_HOOK_THREADS": str(HOOK_THREADS),
            },
        )

    with SharedServer(f"worker-{transport}", make, EXPECTED_ERRORS) as server:
        yield server


@pytest.fixture
def target(_server: SharedServer) -> Target:
    """A running server with default limits; tests leave it as they found it.

    Only how it is started is about workers: whatever serves the same surface can stand here.
    """
    return _server.running()
