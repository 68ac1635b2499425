"""What several conformance tests need besides the shared server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.busy import steps_for, unique
from tests.support.fleet import Fleet, gateway_process
from tests.support.hooklog import HookLog
from tests.support.process import ServerProcess, worker_process
from tests.support.settings import (
    EXPECTED_ERRORS,
    FEW_HOOK_THREADS,
    GATEWAY,
    MESSAGE_LIMIT,
    ODD_NAMES,
    QUEUE_DEPTH,
    REPLICAS,
)
from tests.support.shared import SharedServer
from tests.support.target import Target


@pytest.fixture(scope="session")
def steps_of(_server: SharedServer) -> int:
    """Steps of `slow` that keep the device busy for 0.8 s or a little more."""
    return steps_for(0.8, _server.running().client)


@pytest.fixture(scope="session")
def odd_names(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of `echo` under names that need care, and of one bundle that is no good."""
    folder = tmp_path_factory.mktemp("odd-names")
    for name in ODD_NAMES:
        (folder / name).symlink_to(fixtures / "echo")
    broken = folder / "broken"
    broken.mkdir()
    (broken / "manifest.yaml").write_text("format_version: '3'\n")
    return folder


@pytest.fixture(scope="session")
def explicit_log(workspace: Path, server_kind: str) -> HookLog:
    """What the hooks of the explicit server note, on all of its workers."""
    return HookLog(workspace / f"hooks-explicit-{server_kind}.txt")


@pytest.fixture(scope="session")
def _explicit_server(
    workspace: Path, fixtures: Path, odd_names: Path, cache: Path, server_kind: str, explicit_log: HookLog
) -> Iterator[SharedServer]:
    def log() -> Path:
        return workspace / f"{unique('explicit-' + server_kind)}.log"

    def worker(transport: str) -> ServerProcess:
        return worker_process(
            [fixtures, odd_names],
            log=log(),
            cache=cache,
            environ={
                **explicit_log.environ,
                "INFERENCE_SERVER_MODEL_CONTROL_MODE": "explicit",
                "INFERENCE_SERVER_ENDPOINTS_TRANSPORT": transport,
                "INFERENCE_SERVER_SCHEDULER_MAX_QUEUE_DEPTH": str(QUEUE_DEPTH),
                "INFERENCE_SERVER_HOOK_THREADS": str(FEW_HOOK_THREADS),
                "INFERENCE_SERVER_GRPC_MAX_RECV_MSG_BYTES": str(MESSAGE_LIMIT),
                "INFERENCE_SERVER_GRPC_MAX_SEND_MSG_BYTES": str(MESSAGE_LIMIT),
            },
        )

    def make() -> ServerProcess | Fleet:
        if server_kind != GATEWAY:
            return worker(server_kind.removeprefix("worker-"))
        workers = [worker("native") for _ in range(REPLICAS)]
        limits = {
            "REACTANT_GATEWAY_GRPC_MAX_RECV_MSG_BYTES": str(MESSAGE_LIMIT),
            "REACTANT_GATEWAY_GRPC_MAX_SEND_MSG_BYTES": str(MESSAGE_LIMIT),
        }
        return Fleet(gateway_process(workers, log=log(), environ=limits), workers)

    expected = (*EXPECTED_ERRORS, "model failed to load")
    with SharedServer(f"explicit-{server_kind}", make, expected) as server:
        yield server


@pytest.fixture
def explicit(_explicit_server: SharedServer) -> Target:
    """A server with small limits that loads by request only; `echo` is loaded."""
    target = _explicit_server.running()
    if "echo" not in target.client.index(ready=True):
        target.client.load("echo").ok()
    return target
