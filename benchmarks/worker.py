"""Requests per second and latency of one small model: our worker, Triton and MLServer, in turn."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from benchmarks import h2load, processes
from benchmarks.peers import environments, servers
from benchmarks.peers.function import BATCH_SIZES, FEATURES, MODEL, compiled, function, weights
from benchmarks.peers.servers import Server
from reactant_core.rpc import create_sync_channel
from reactant_export import TensorDecl, export_jax
from reactant_proto import inference_pb2 as pb
from reactant_proto import inference_pb2_grpc as rpc

METHOD = "inference.GRPCInferenceService/ModelInfer"
CONCURRENCIES = (8, 32, 128)
PLACEMENTS = ("one core", "all cores")
"""A server has the first core to itself and the load the others; or all share all."""

PEERS: Mapping[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "triton": servers.triton,
    "mlserver": servers.mlserver,
}

# Of the requests asked for, the share each server gets: the others wait for the slow one.
_SHARES: Mapping[str, float] = {"worker": 1.0, "triton": 1.0, "mlserver": 0.1}
_WARM_UP_SHARE = 0.1

_CHECKED_ROWS = (1, 1, 2, 3, 1, 8, 5, 1, 1, 13, 1, 4)
"""Rows of the requests that check a server, sent at once: they share batches, and must not mix."""

_TOLERANCE = 1e-5


def missing() -> str | None:
    """What this benchmark lacks here; a peer that lacks something is left out by name."""
    if not h2load.available():
        return "h2load is not installed"
    if len(os.sched_getaffinity(0)) < 2:
        return "it needs two CPU cores"
    return None


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows, one per round, placement, concurrency and server."""
    peers = []
    for name in PEERS:
        lacking = environments.missing(name)
        if lacking is None:
            peers.append(name)
        else:
            print(f"worker: {name} skipped, {lacking}")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
        _write_bundle(folder / "models" / MODEL)
        body = h2load.write_body(folder / "body", request(np.ones((1, FEATURES), np.float32)))
        measure = partial(_measure, body=body, log=folder / "log", expected=compiled())
        for number in range(options.rounds):
            for placement in PLACEMENTS:
                with _running(placement, folder, peers) as started:
                    for concurrency in CONCURRENCIES:
                        # Whoever comes second finds another machine: they take turns.
                        for server in started if number % 2 == 0 else started[::-1]:
                            requests = round(options.requests * _SHARES[server.name])
                            row = measure(server, requests=requests, concurrency=concurrency)
                            where = {"round": number, "placement": placement, "server": server.name}
                            rows.append({**where, **row})
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By placement, concurrency and server: medians, and the worker's requests/s over the server's."""
    found = []
    keys = ("placement", "concurrency")
    for case in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        by_server: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            if tuple(row[key] for key in keys) == case:
                by_server.setdefault(row["server"], []).append(row)
        mine = [row["requests_per_second"] for row in by_server["worker"]]
        for name, side in by_server.items():
            line: dict[str, Any] = {**dict(zip(keys, case, strict=True)), "server": name}
            for column in ("requests_per_second", "p50_ms", "p99_ms", "cpu_us_per_request"):
                line[column] = round(statistics.median(row[column] for row in side), 3)
            ratios = [ours / row["requests_per_second"] for ours, row in zip(mine, side, strict=True)]
            line["worker_ratios"] = " ".join(f"{ratio:.2f}" for ratio in ratios)
            line["worker_ratio"] = round(statistics.median(ratios), 2)
            found.append(line)
    return found


def request(x: NDArray[np.float32]) -> pb.ModelInferRequest:
    """A request with `x` f32 [n, 16] as raw contents."""
    message = pb.ModelInferRequest(model_name=MODEL)
    message.inputs.add(name="x", datatype="FP32", shape=x.shape)
    message.raw_input_contents.append(x.tobytes())
    return message


def _write_bundle(path: Path) -> None:
    path.parent.mkdir()
    export_jax(
        function,
        weights(),
        inputs=[TensorDecl("x", "f32", "nf", {"f": FEATURES})],
        outputs=[TensorDecl("y", "f32", "nf", {"f": FEATURES})],
        batch_sizes=BATCH_SIZES,
        path=path,
        verify=False,
    )


@contextmanager
def _running(placement: str, folder: Path, peers: Sequence[str]) -> Iterator[list[Server]]:
    """Our worker and the peers on their cores; what is started inside runs on those of the load."""
    first, *others = sorted(os.sched_getaffinity(0))
    cores, rest = ({first}, set(others)) if placement == "one core" else ({first, *others},) * 2
    with tempfile.TemporaryDirectory(dir=folder) as scratch, ExitStack() as stack:
        started = []
        with processes.on_cores(cores):
            started.append(stack.enter_context(servers.ours(folder / "models", folder / "cache")))
            for name in peers:
                own = Path(scratch) / name
                own.mkdir()
                started.append(stack.enter_context(PEERS[name](own)))
        stack.enter_context(processes.on_cores(rest))
        yield started


def _measure(
    server: Server, *, body: Path, log: Path, expected: Callable[..., Any], requests: int, concurrency: int
) -> dict[str, Any]:
    load = partial(h2load.run, server.port, METHOD, body, concurrency=concurrency, log=log)
    _check(server, expected)
    load(requests=max(concurrency, round(requests * _WARM_UP_SHARE)))
    answered, cpu = server.answered(), server.cpu_seconds()
    result = load(requests=requests)
    used = server.cpu_seconds() - cpu
    answered = server.answered() - answered
    _check(server, expected)
    if result.failed or answered != requests:
        raise RuntimeError(
            f"{server.name}: of {requests} requests {result.failed} failed, "
            f"{answered} ended with grpc-status 0"
        )
    return {
        "concurrency": concurrency,
        "requests": requests,
        "failed": result.failed,
        "ok_by_grpc_status": answered,
        "requests_per_second": round(result.requests_per_second, 1),
        "p50_ms": round(result.p50 * 1e3, 3),
        "p99_ms": round(result.p99 * 1e3, 3),
        "cpu_us_per_request": round(used / requests * 1e6, 1),
    }


def _check(server: Server, expected: Callable[..., Any]) -> None:
    """A stock client gets the function's own answers; raises grpc.RpcError or RuntimeError if not."""
    random = np.random.default_rng(1)
    inputs = [random.normal(size=(rows, FEATURES)).astype(np.float32) for rows in _CHECKED_ROWS]
    with create_sync_channel(f"127.0.0.1:{server.port}") as channel:
        stub = rpc.GRPCInferenceServiceStub(channel)
        calls = [stub.ModelInfer.future(request(x), timeout=30) for x in inputs]
        for x, call in zip(inputs, calls, strict=True):
            answer = call.result()
            values = np.frombuffer(b"".join(answer.raw_output_contents), np.float32)
            if list(answer.outputs[0].shape) != list(x.shape) or values.size != x.size:
                raise RuntimeError(f"{server.name} gave a wrong answer: {answer}")
            difference = float(np.abs(values.reshape(x.shape) - expected([x])).max())
            if not difference <= _TOLERANCE:
                raise RuntimeError(f"{server.name} gave a wrong answer: {difference} off")
