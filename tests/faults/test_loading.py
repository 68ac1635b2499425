"""What probes say while models load (case L5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.support.client import Client
from tests.support.messages import echo
from tests.support.process import worker_process
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb


@contextmanager
def worker(
    models: list[Path], include: tuple[str, ...], *, folder: Path, cache: Path, gate: Path | None = None
) -> Iterator[Target]:
    """A worker that listens, ready or not."""
    process = worker_process(
        models,
        log=folder / "worker.log",
        cache=cache,
        include=include,
        environ={} if gate is None else {"FIXTURE_GATE": str(gate)},
    )
    with process, Client(process.address) as client:
        process.wait_listening()
        yield Target("loading", process, client)


def health(target: Target, name: str) -> int:
    return int(target.client.health.Check(HealthCheckRequest(service=name), timeout=5).status)


@pytest.mark.slow
def test_l5_every_probe_tells_the_truth_while_a_model_loads(
    fixtures: Path, cache: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    with worker([fixtures], ("echo", "gate"), folder=tmp_path, cache=cache, gate=gate) as target:
        client = target.client
        eventually_sync(lambda: client.index().get("echo") == ("READY", ""), 30)

        # One model serves, the other loads: the server as a whole is live and not ready.
        assert client.call("ServerLive", pb.ServerLiveRequest()).ok().live
        assert not client.call("ServerReady", pb.ServerReadyRequest()).ok().ready
        assert target.process.get("/healthz").status == 200
        readyz = target.process.get("/readyz")
        assert readyz.status == 503
        assert readyz.json()["models"] == {"total": 2, "ready": 1, "failed": 0}
        assert health(target, "") == health(target, "gate") == HealthCheckResponse.NOT_SERVING
        assert health(target, "echo") == HealthCheckResponse.SERVING
        assert client.index()["gate"][0] == "LOADING"
        assert client.index(ready=True).keys() == {"echo"}
        assert client.ready("echo")
        assert not client.ready("gate")
        client.infer(echo()).ok()
        refused = client.infer(echo(model="gate"))
        assert refused.code is grpc.StatusCode.UNAVAILABLE
        assert "'gate'" in refused.details
        assert "loading" in refused.details
        assert refused.trailers == {"reactant-not-started": "1"}
        assert refused.seconds < 0.25
        assert target.page().value("worker_startup_models", state="loading") == 1

        gate.touch()
        target.process.wait_ready()

        assert client.call("ServerReady", pb.ServerReadyRequest()).ok().ready
        assert health(target, "") == health(target, "gate") == HealthCheckResponse.SERVING
        assert client.index() == dict.fromkeys(("echo", "gate"), ("READY", ""))
        client.infer(echo(model="gate")).ok()
        target.assert_well()


@pytest.mark.slow
def test_l5_from_the_first_moment_a_known_model_is_loading_and_never_unknown(
    fixtures: Path, cache: Path, tmp_path: Path
) -> None:
    """Asked as often as possible from before the port opens until the server is ready."""
    process = worker_process([fixtures], log=tmp_path / "worker.log", cache=cache, include=("echo",))
    with Client(process.address) as client, process:
        codes: list[grpc.StatusCode] = []
        ready: list[bool | grpc.StatusCode] = []
        states: set[str] = set()
        end = time.monotonic() + 30
        while time.monotonic() < end and grpc.StatusCode.OK not in codes:
            reply = client.infer(echo(), wait_for_ready=True)
            codes.append(reply.code)
            probe = client.call("ModelReady", pb.ModelReadyRequest(name="echo"))
            ready.append(probe.response.ready if probe.response is not None else probe.code)
            states.add(client.index().get("echo", ("absent", ""))[0])

        assert set(codes) == {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK}
        assert set(ready) <= {False, True}
        assert states <= {"LOADING", "READY"}


@pytest.mark.slow
def test_l5_alive_throughout_a_long_compile(fixtures: Path, tmp_path: Path) -> None:
    """With a cache of its own, so that it really compiles; every probe is answered within a second."""
    with worker([fixtures], ("echo", "sorts"), folder=tmp_path, cache=tmp_path / "cache") as target:
        client = target.client
        eventually_sync(lambda: client.index().get("sorts", ("", ""))[0] == "LOADING", 30)
        slowest = 0.0
        probes = 0
        while not client.ready("sorts"):
            begin = time.monotonic()
            assert client.call("ServerLive", pb.ServerLiveRequest()).ok().live
            assert target.process.get("/healthz").status == 200
            refused = client.infer(echo(model="sorts"))
            if refused.code is not grpc.StatusCode.INVALID_ARGUMENT:  # it has just become ready
                assert refused.code is grpc.StatusCode.UNAVAILABLE
            slowest = max(slowest, time.monotonic() - begin)
            probes += 1
            threading.Event().wait(0.05)

        assert probes >= 5, "the compile was meant to take longer"
        assert slowest < 1.0
        target.process.wait_ready()
        assert target.page().value("worker_compile_cache_misses_total") >= 4
        target.assert_well()
