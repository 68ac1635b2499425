"""Asks a server how it is, again and again, until its input ends: `python -m tests.engine.probe ADDRESS`.

A process of its own: what it measures is the server's, not that of a test that keeps its interpreter busy.
Prints the `Findings` as one JSON object.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reactant_core.testing import eventually_sync
from reactant_proto import inference_pb2 as pb
from reactant_proto import inference_pb2_grpc

PAUSE_SECONDS = 0.02


@final
@dataclass(frozen=True, slots=True)
class Findings:
    """What a probe found.

    Attributes:
        live_seconds: to each answer of ServerLive.
        health_seconds: to each answer of the health service.
        not_ready: how often either, or ServerReady, said that the server is not well.
        errors: status and text of each call that failed.
    """

    live_seconds: list[float]
    health_seconds: list[float]
    not_ready: int
    errors: list[str]


@final
class Probe:
    """The process, asking for as long as the block runs; use as a context manager."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.probe", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._findings: Findings | None = None

    def __enter__(self) -> Probe:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "asking\n"
        return self

    def __exit__(self, *_: object) -> None:
        output, _errors = self._process.communicate(timeout=20)
        self._findings = Findings(**json.loads(output))

    @property
    def findings(self) -> Findings:
        """Known when the block has been left."""
        assert self._findings is not None
        return self._findings


@final
class _Asked:
    """One RPC, asked without waiting for the answer to the question before: a stall holds up all of them."""

    def __init__(self, call: Any, request: Any, ready: Callable[[Any], bool]) -> None:
        self._call = call
        self._request = request
        self._ready = ready
        self._pending = 0
        self.seconds: list[float] = []
        self.not_ready = 0
        self.errors: list[str] = []

    def ask(self) -> None:
        sent = time.monotonic()
        self._pending += 1
        self._call.future(self._request, timeout=10).add_done_callback(
            lambda call: self._answered(call, sent)
        )

    def wait(self) -> None:
        eventually_sync(lambda: self._pending == 0, 15)

    def _answered(self, call: Any, sent: float) -> None:
        self.seconds.append(time.monotonic() - sent)
        if call.code() is not grpc.StatusCode.OK:
            self.errors.append(f"{call.code().name}: {call.details()}")
        elif not self._ready(call.result()):
            self.not_ready += 1
        self._pending -= 1


def main() -> None:
    """See the module."""
    options = (("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0))
    with grpc.insecure_channel(sys.argv[1], options=options) as channel:
        grpc.channel_ready_future(channel).result(20)
        stub: Any = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        checks: Any = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        live = _Asked(stub.ServerLive, pb.ServerLiveRequest(), lambda answer: bool(answer.live))
        ready = _Asked(stub.ServerReady, pb.ServerReadyRequest(), lambda answer: bool(answer.ready))
        health = _Asked(
            checks.Check, health_pb2.HealthCheckRequest(), lambda answer: answer.status == serving
        )
        all_three = (live, ready, health)
        print("asking", flush=True)
        while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
            for one in all_three:
                one.ask()
        for one in all_three:
            one.wait()
    found = Findings(
        live_seconds=live.seconds,
        health_seconds=health.seconds,
        not_ready=sum(one.not_ready for one in all_three),
        errors=[error for one in all_three for error in one.errors],
    )
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
