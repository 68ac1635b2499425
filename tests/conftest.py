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
from tests.support.fleet import Fleet, gateway_process  # noqa: E402
from tests.support.hooklog import HookLog  # noqa: E402
from tests.support.process import ServerProcess, worker_process  # noqa: E402
from tests.support.settings import (  # noqa: E402
    EXPECTED_ERRORS,
    GATEWAY,
    HOOK_THREADS,
    INTERNAL_MODELS,
    REPLICAS,
    SERVERS,
    SHARED_MODELS,
    TRANSPORTS,
)
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


@pytest.fixture(scope="session", params=SERVERS)
def server_kind(request: pytest.FixtureRequest) -> str:
    """Each server that has the surface."""
    return str(request.param)


@pytest.fixture(scope="session")
def hook_log(workspace: Path, server_kind: str) -> HookLog:
    """What the hooks of the shared server note, on all of its workers."""
    return HookLog(workspace / f"hooks-{server_kind}.txt")


@pytest.fixture(scope="session")
def _server(
    workspace: Path, fixtures: Path, cache: Path, server_kind: str, hook_log: HookLog
) -> Iterator[SharedServer]:
    def worker(transport: str) -> ServerProcess:
        return worker_process(
            [fixtures],
            log=workspace / f"{unique(server_kind)}.log",
            cache=cache,
            include=(*SHARED_MODELS, *INTERNAL_MODELS),
            environ={
                **hook_log.environ,
                "INFERENCE_SERVER_ENDPOINTS_TRANSPORT": transport,
                "INFERENCE_SERVER_HOOK_THREADS": str(HOOK_THREADS),
            },
        )

    def make() -> ServerProcess | Fleet:
        if server_kind != GATEWAY:
            return worker(server_kind.removeprefix("worker-"))
        workers = [worker("native") for _ in range(REPLICAS)]
        return Fleet(gateway_process(workers, log=workspace / f"{unique('gateway')}.log"), workers)

    with SharedServer(server_kind, make, EXPECTED_ERRORS) as server:
        yield server


@pytest.fixture
def target(_server: SharedServer) -> Target:
    """A running server with default limits; tests leave it as they found it."""
    return _server.running()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "worker_only(reason): about a worker itself, not about the surface")


def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("worker_only")
    chosen = getattr(item, "callspec", None)
    if marker is not None and chosen is not None and chosen.params.get("server_kind") == GATEWAY:
        pytest.skip(f"on a worker only: {marker.args[0]}")
