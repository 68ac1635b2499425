"""Stopping: what was accepted is finished, what comes later is refused, and the process ends (case L6)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.support.busy import unique
from tests.support.client import Client, replies
from tests.support.hooklog import HookLog
from tests.support.messages import echo, slow_hook
from tests.support.process import worker_process
from tests.support.target import Target

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb

CAP = 12
HOOKS = 4
IN_TIME = 6.0
"""Seconds to end in when nothing is left to wait for."""

Start = Callable[..., Target]


@pytest.fixture
def started(
    workspace: Path, fixtures: Path, cache: Path, transport: str, request: pytest.FixtureRequest
) -> Iterator[tuple[Start, HookLog]]:
    """Starts a worker of the test's own; the test must end it."""
    name = unique("own")
    log = HookLog(workspace / f"{name}.hooks")
    with ExitStack() as stack:

        def start(**environ: str) -> Target:
            process = worker_process(
                [fixtures],
                log=workspace / f"{name}.log",
                cache=cache,
                include=("echo", "slow_hook", "gate"),
                environ={
                    **log.environ,
                    "INFERENCE_SERVER_ENDPOINTS_TRANSPORT": transport,
                    "INFERENCE_SERVER_ENDPOINTS_MAX_CONCURRENT_REQUESTS": str(CAP),
                    "INFERENCE_SERVER_HOOK_THREADS": str(HOOKS),
                    **environ,
                },
            )
            stack.enter_context(process)
            client = stack.enter_context(Client(process.address))
            process.wait_listening()
            return Target(name, process, client)

        yield start, log


@pytest.mark.slow
def test_l6_drain(started: tuple[Start, HookLog]) -> None:
    start, log = started
    target = start(INFERENCE_SERVER_LAMEDUCK_SECONDS="1")
    target.process.wait_ready()
    client = target.client
    before = set(Path("/dev/shm").iterdir())
    watch = client.health.Watch(HealthCheckRequest(service=""), timeout=30)
    assert next(watch).status == HealthCheckResponse.SERVING
    running = [client.start_infer(slow_hook(2.5, id=f"r{i}")) for i in range(HOOKS)]
    eventually_sync(lambda: all(log.has(f"begin r{i}") for i in range(HOOKS)))
    queued = [client.start_infer(slow_hook(0, id=f"q{i}")) for i in range(HOOKS)]
    eventually_sync(lambda: target.in_flight() == 2 * HOOKS)

    target.process.signal(signal.SIGTERM)

    # Announced first, by every probe, while requests are still admitted.
    assert next(watch).status == HealthCheckResponse.NOT_SERVING
    assert target.process.get("/readyz").status == 503
    assert target.process.get("/healthz").status == 200
    assert not client.call("ServerReady", pb.ServerReadyRequest()).ok().ready
    assert client.call("ServerLive", pb.ServerLiveRequest()).ok().live
    client.infer(echo()).ok()
    # Then refused, while what was accepted goes on.
    eventually_sync(lambda: client.infer(echo()).code is not grpc.StatusCode.OK, 2)
    refused = client.infer(echo())
    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert refused.trailers == {"reactant-not-started": "1"}
    assert not any(one.done() for one in running)
    for reply in replies([*running, *queued]):
        reply.ok()
    assert target.process.wait(IN_TIME) == 0
    assert set(Path("/dev/shm").iterdir()) <= before


@pytest.mark.slow
def test_a_cap_on_requests_in_flight(started: tuple[Start, HookLog]) -> None:
    start, _ = started
    target = start()
    target.process.wait_ready()
    accepted = [target.client.start_infer(slow_hook(0.5, id=str(i))) for i in range(CAP)]
    eventually_sync(lambda: target.in_flight() == CAP)

    refused = target.client.infer(echo())

    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(CAP) in refused.details
    assert refused.trailers == {"reactant-not-started": "1"}
    assert refused.seconds < 0.25
    for reply in replies(accepted):
        reply.ok()
    target.assert_well()
    assert target.process.stop(IN_TIME) == 0


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(started: tuple[Start, HookLog]) -> None:
    start, log = started
    target = start()
    target.process.wait_ready()
    lost = target.client.start_infer(slow_hook(60, id="lost"))
    eventually_sync(lambda: log.has("begin lost"))
    target.process.signal(signal.SIGTERM)
    eventually_sync(lambda: target.process.get("/readyz").status == 503)

    def ended() -> bool:
        # Signals within a second of the first are taken for the same request.
        if target.process.running:
            target.process.signal(signal.SIGTERM)
        return not target.process.running

    eventually_sync(ended, 5)
    assert target.process.wait(1.0) == 128 + signal.SIGTERM
    assert lost.reply().code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.slow
def test_work_that_outlasts_the_drain_is_given_up(started: tuple[Start, HookLog]) -> None:
    start, log = started
    target = start(INFERENCE_SERVER_DRAIN_TIMEOUT_SECONDS="0.5")
    target.process.wait_ready()
    lost = target.client.start_infer(slow_hook(60, id="lost"), timeout=None)
    eventually_sync(lambda: log.has("begin lost"))

    code = target.process.stop(IN_TIME)

    assert code == 0
    assert lost.reply().code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@pytest.mark.slow
def test_stopped_while_it_still_loads(started: tuple[Start, HookLog], workspace: Path) -> None:
    start, _ = started
    target = start(FIXTURE_GATE=str(workspace / "never"))
    eventually_sync(lambda: target.client.index().get("echo") == ("READY", ""), 30)

    assert target.process.stop(IN_TIME) == 0


@pytest.mark.slow
def test_stopped_under_traffic_every_request_has_an_answer(started: tuple[Start, HookLog]) -> None:
    """Each is served, or refused as not started; none is lost on the way."""
    start, _ = started
    target = start(INFERENCE_SERVER_LAMEDUCK_SECONDS="0.2")
    target.process.wait_ready()
    outcomes: list[tuple[grpc.StatusCode, str]] = []
    enough = threading.Event()

    def send() -> None:
        with Client(target.process.address) as client:
            while True:
                reply = client.infer(echo())
                outcomes.append((reply.code, reply.details))
                if reply.code is not grpc.StatusCode.OK:
                    return
                if len(outcomes) > 200:
                    enough.set()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert enough.wait(20)

    begin = time.monotonic()
    assert target.process.stop(IN_TIME) == 0

    assert time.monotonic() - begin < IN_TIME
    for thread in threads:
        thread.join(20)
    # The last answer of each client may be a connection that is already closed.
    lost = {o for o in outcomes if o[0] not in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)}
    assert not lost
