"""GatewayControlService as a client has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, final

import grpc
from tests.packing.settings import FULL

from reactant_core.testing import eventually_sync
from reactant_proto import gateway_pb2 as gpb
from reactant_proto import gateway_pb2_grpc

ALL = gpb.Replicas(all=True)
TIMEOUT_SECONDS = 20.0


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """How a call failed."""

    code: grpc.StatusCode
    details: str


@final
class Control:
    """Stubs over one channel; use as a context manager. Whatever fails raises `grpc.RpcError`."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(
            address, options=(("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
        )
        self._stub: Any = gateway_pb2_grpc.GatewayControlServiceStub(self._channel)

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def status(self) -> gpb.GetSchedulingStatusResponse:
        """GetSchedulingStatus."""
        answer: gpb.GetSchedulingStatusResponse = self._stub.GetSchedulingStatus(
            gpb.GetSchedulingStatusRequest(), timeout=TIMEOUT_SECONDS
        )
        return answer

    def model(self, name: str) -> gpb.ModelPlacement:
        """One model of the status."""
        (found,) = (model for model in self.status().models if model.name == name)
        return found

    def repacked(self, trigger: str, times: int = 1, seconds: float = 240.0 if FULL else 60.0) -> None:
        """Until there were so many repacks more for this reason."""
        wanted = self.status().repacks[trigger] + times
        eventually_sync(
            lambda: self.status().repacks[trigger] >= wanted, seconds, what=f"{wanted} repacks by {trigger}"
        )

    def set_policy(self, *also: str, **fields: Any) -> gpb.SetSchedulingPolicyResponse:
        """SetSchedulingPolicy of these fields; `also` are further paths of the mask."""
        request = gpb.SetSchedulingPolicyRequest(policy=gpb.SchedulingPolicy(**fields))
        request.update_mask.paths.extend([*fields, *also])
        answer: gpb.SetSchedulingPolicyResponse = self._stub.SetSchedulingPolicy(
            request, timeout=TIMEOUT_SECONDS
        )
        return answer

    def place(
        self, model: str, replicas: int | gpb.Replicas | None = None, **fields: Any
    ) -> gpb.SetModelPlacementResponse:
        """SetModelPlacement."""
        wanted = gpb.Replicas(count=replicas) if isinstance(replicas, int) else replicas
        request = gpb.SetModelPlacementRequest(model=model, replicas=wanted, **fields)
        answer: gpb.SetModelPlacementResponse = self._stub.SetModelPlacement(request, timeout=TIMEOUT_SECONDS)
        return answer

    def repack(self, wait_seconds: float = 10.0) -> gpb.RepackResponse:
        """Repack."""
        answer: gpb.RepackResponse = self._stub.Repack(
            gpb.RepackRequest(wait_seconds=wait_seconds), timeout=TIMEOUT_SECONDS
        )
        return answer


def failure(error: grpc.RpcError) -> Failure:
    """What a client is told."""
    call: Any = error
    return Failure(call.code(), call.details() or "")


@final
@dataclass(frozen=True, slots=True)
class Said:
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


def command(*arguments: str) -> Said:
    """Runs `reactant` with these arguments, on a terminal of ordinary width."""
    program = "from reactant_cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Said(done.returncode, done.stdout, done.stderr)
