"""A node of CPU workers for the packing benchmark: its models, a replay of a trace, and its own counters."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from benchmarks import processes
from reactant_core.rpc import create_channel, create_sync_channel
from reactant_core.testing import free_range
from reactant_export import TensorDecl, export_jax
from reactant_policy.routing.work import Totals
from reactant_policy.simulate.trace import Trace
from reactant_proto import control_pb2, control_pb2_grpc, gateway_pb2, gateway_pb2_grpc
from reactant_proto import inference_pb2 as pb
from reactant_proto import inference_pb2_grpc as rpc

BATCH_SIZES = (1, 8)
WIDTH = 4

_STEPS_PER_MILLISECOND = 60_000
_READY_SECONDS = 300
_TIMEOUT_SECONDS = 30.0


@final
@dataclass(frozen=True, slots=True)
class Counters:
    """What a worker says of a model: device time and rows, executions, and the bytes of its weights."""

    totals: Totals
    dispatches: int
    weight_bytes: int


@final
@dataclass(frozen=True, slots=True)
class Replay:
    """A trace that was sent.

    Attributes:
        seconds: float64 [n], from when each request was due until its answer.
        before: counters by (worker, model) when the warm-up was over.
        after: counters at the end.
    """

    seconds: NDArray[np.float64]
    before: Mapping[tuple[str, str], Counters]
    after: Mapping[tuple[str, str], Counters]

    def spent(self) -> Mapping[tuple[str, str], Counters]:
        """What was done after the warm-up."""
        return {
            key: Counters(
                Totals(
                    now.totals.compute_seconds - self.before[key].totals.compute_seconds,
                    now.totals.rows - self.before[key].totals.rows,
                ),
                now.dispatches - self.before[key].dispatches,
                now.weight_bytes,
            )
            for key, now in self.after.items()
        }


@final
@dataclass(frozen=True, slots=True)
class Node:
    """A running node; its workers listen from `base` on."""

    grpc_port: int
    http_port: int
    base: int
    workers: int

    def counters(self) -> Mapping[tuple[str, str], Counters]:
        """By (worker, model)."""
        found = {}
        for index in range(self.workers):
            with create_sync_channel(f"127.0.0.1:{self.base + index}") as channel:
                stub = control_pb2_grpc.ControlServiceStub(channel)
                answer = stub.ModelControlStatus(
                    control_pb2.ModelControlStatusRequest(), timeout=30, wait_for_ready=True
                )
            for model in answer.models:
                totals = Totals(model.compute_seconds, model.rows_served)
                found[answer.worker, model.name] = Counters(totals, model.dispatches, model.weight_bytes)
        return found

    def weight_budget_bytes(self) -> int:
        """Of one worker; 0: no limit."""
        with create_sync_channel(f"127.0.0.1:{self.base}") as channel:
            stub = control_pb2_grpc.ControlServiceStub(channel)
            return int(stub.ModelControlStatus(control_pb2.ModelControlStatusRequest()).weight_budget_bytes)

    def homes(self) -> Mapping[str, tuple[str, ...]]:
        """Workers by model, as the gateway's metrics tell them."""
        found: dict[str, list[str]] = {}
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics") as page:
            for line in page.read().decode().splitlines():
                if line.startswith("gateway_placement_weight{"):
                    labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                    found.setdefault(labels["model"], []).append(labels["worker"])
        return {model: tuple(sorted(workers)) for model, workers in sorted(found.items())}

    def replay(self, trace: Trace, warm_up_seconds: float, repack_at: float | None) -> Replay:
        """Sends every request of a trace when it is due; ExceptionGroup when one failed.

        Args:
            trace: the requests.
            warm_up_seconds: when the first counters are read.
            repack_at: when the gateway is asked for a placement, seconds.
        """
        return asyncio.run(self._replay(trace, warm_up_seconds, repack_at))

    async def _replay(self, trace: Trace, warm_up_seconds: float, repack_at: float | None) -> Replay:
        async with asyncio.TaskGroup() as group:
            before = group.create_task(self._counters_after(warm_up_seconds))
            if repack_at is not None:
                group.create_task(self._repack_after(repack_at))
            seconds = await _replay(f"127.0.0.1:{self.grpc_port}", trace)
        return Replay(seconds, before.result(), self.counters())

    async def _repack_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        async with create_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            stub = gateway_pb2_grpc.GatewayControlServiceStub(channel)
            await stub.Repack(gateway_pb2.RepackRequest(), timeout=_TIMEOUT_SECONDS)

    async def _counters_after(self, seconds: float) -> Mapping[tuple[str, str], Counters]:
        await asyncio.sleep(seconds)
        return await asyncio.to_thread(self.counters)

    def overhead_seconds(self, model: str, calls: int = 50) -> float:
        """What a request to an idle node takes beside its device time: the median over `calls`."""
        before = self._device(model)
        request = _request(model, 1)
        taken = []
        with create_sync_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            stub = rpc.GRPCInferenceServiceStub(channel)
            for _ in range(calls):
                begin = time.perf_counter()
                stub.ModelInfer(request, timeout=_TIMEOUT_SECONDS)
                taken.append(time.perf_counter() - begin)
        device = (self._device(model) - before) / calls
        return max(0.0, float(np.median(taken)) - device)

    def _device(self, model: str) -> float:
        return sum(found.totals.compute_seconds for key, found in self.counters().items() if key[1] == model)


def write_models(folder: Path, milliseconds: Mapping[str, float]) -> None:
    """A bundle for each model: an execution takes so long on an idle core, whatever its rows."""
    for name, cost in milliseconds.items():
        steps = round(cost * _STEPS_PER_MILLISECOND)

        def program(
            x: Mapping[str, jnp.ndarray], w: Mapping[str, jnp.ndarray], steps: int = steps
        ) -> dict[str, jnp.ndarray]:
            last = lax.fori_loop(0, steps, lambda _, v: jnp.sin(v + 1), x["X"][0, 0] * 0)
            # A sine is never above 2, which the compiler does not know.
            return {"Y": jnp.where(last > 2, last, x["X"] + w["shift"])}

        export_jax(
            program,
            {"shift": np.zeros(WIDTH, np.float32)},
            inputs=[TensorDecl("X", "f32", "nk", {"k": WIDTH})],
            outputs=[TensorDecl("Y", "f32", "nk", {"k": WIDTH})],
            batch_sizes=BATCH_SIZES,
            path=folder / name,
            verify=False,
        )


@contextmanager
def node(models: Path, scratch: Path, workers: int, environment: Mapping[str, str]) -> Iterator[Node]:
    """Starts a node, yields it when all of its workers serve, and stops it."""
    first = free_range(2 * workers + 2)
    settings = os.environ | {
        "REACTANT_GPUS": "0",
        "REACTANT_CPU_WORKERS": str(workers),
        "REACTANT_PUBLIC_PORT": str(first),
        "REACTANT_PUBLIC_METRICS_PORT": str(first + 1),
        "REACTANT_BASE_PORT": str(first + 2),
        "REACTANT_METRICS_BASE_PORT": str(first + 2 + workers),
        "REACTANT_RUN_DIR": str(scratch / "run"),
        "INFERENCE_SERVER_MODEL_DIRS": str(models),
        "INFERENCE_SERVER_CACHE_DIR": str(scratch / "cache"),
        "INFERENCE_SERVER_ENDPOINTS_HOST": "127.0.0.1",
        "INFERENCE_SERVER_RUNTIME_BACKEND": "cpu",
        "INFERENCE_SERVER_LAMEDUCK_SECONDS": "0",
        "REACTANT_GATEWAY_LAMEDUCK_SECONDS": "0",
        "NOTIFY_SOCKET": "",
        **environment,
    }
    pages = [f"http://127.0.0.1:{first + 1}/readyz"]
    pages += [f"http://127.0.0.1:{first + 2 + workers + index}/readyz" for index in range(workers)]
    with processes.started(
        "the node",
        [sys.executable, "-m", "reactant_supervisor"],
        ready=lambda: all(processes.answers_200(page) for page in pages),
        timeout_seconds=_READY_SECONDS,
        environment=settings,
        log=scratch / "log",
    ):
        yield Node(first, first + 1, first + 2, workers)


async def _replay(address: str, trace: Trace) -> NDArray[np.float64]:
    seconds = np.full(len(trace), np.nan)
    items = trace.items.tolist()
    bodies = {
        (model, count): _request(trace.models[model], count)
        for model, count in set(zip(trace.which.tolist(), items, strict=True))
    }
    async with create_channel(address) as channel, asyncio.TaskGroup() as group:
        stub = rpc.GRPCInferenceServiceStub(channel)
        begin = time.perf_counter()
        for ticket, (due, model) in enumerate(zip(trace.times.tolist(), trace.which.tolist(), strict=True)):
            wait = begin + due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            body = bodies[model, items[ticket]]
            group.create_task(_ask(stub, body, begin + due, seconds, ticket))
    return seconds


async def _ask(
    stub: rpc.GRPCInferenceServiceAsyncStub,
    request: pb.ModelInferRequest,
    due: float,
    seconds: NDArray[np.float64],
    ticket: int,
) -> None:
    # From when it was due: a client that lags does not make the server look quicker.
    await stub.ModelInfer(request, timeout=_TIMEOUT_SECONDS)
    seconds[ticket] = time.perf_counter() - due


def _request(model: str, rows: int) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model)
    message.inputs.add(name="X", datatype="FP32", shape=(rows, WIDTH))
    message.raw_input_contents.append(np.ones((rows, WIDTH), np.float32).tobytes())
    return message
