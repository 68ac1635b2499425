"""CPU per forwarded ModelInfer and added latency: the gateway and nginx `grpc_pass`, in turn."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from tools import compile_gateway

from benchmarks import h2load, processes, proxies
from benchmarks.no_op_worker import MODEL
from benchmarks.proxies import Proxy
from reactant_core.rpc import create_sync_channel
from reactant_proto import inference_pb2 as pb
from reactant_proto import inference_pb2_grpc as rpc

METHOD = "inference.GRPCInferenceService/ModelInfer"
WORKERS = 2
WARM_UP_REQUESTS = 1000
LATENCY_REQUESTS = 2000

SHAPES: Mapping[str, Sequence[int]] = {"64 B": [1, 39], "147 KiB": [1, 224, 224, 3]}
"""Bodies by name: the shape of their one UINT8 tensor. The first makes a message of 64 bytes."""

# Of the requests asked for, the share sent with each body: the larger takes longer.
_SHARES: Mapping[str, float] = {"64 B": 1.0, "147 KiB": 0.3}
_SHARE_ALONE = 0.25
"""And of those the share sent one at a time."""


@final
@dataclass(frozen=True, slots=True)
class Cores:
    """Where the proxy runs, and where everything else does."""

    proxy: set[int]
    others: set[int]


def missing() -> str | None:
    """What this benchmark lacks here."""
    if not h2load.available():
        return "h2load is not installed"
    if proxies.nginx_missing():
        return "nginx is not installed"
    if len(os.sched_getaffinity(0)) < 2:
        return "it needs two CPU cores"
    return None


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows, one per round, body, concurrency and proxy."""
    first, *others = sorted(os.sched_getaffinity(0))
    cores = Cores({first}, set(others))
    package = None if compile_gateway.missing() else compile_gateway.compiled()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, processes.on_cores(cores.others):
        folder = Path(name)
        bodies = {
            body: h2load.write_body(folder / str(index), request(shape))
            for index, (body, shape) in enumerate(SHAPES.items())
        }
        for number in range(options.rounds):
            with workers() as ports, ExitStack() as stack:
                pair = [
                    _started(stack, cores, partial(proxies.gateway, ports, package)),
                    _started(stack, cores, partial(proxies.nginx, ports, folder / f"nginx{number}")),
                ]
                for body, path in bodies.items():
                    for concurrency in (1, options.concurrency, 4 * options.concurrency):
                        measure = partial(
                            _measure,
                            ports=ports,
                            body=path,
                            requests=round(
                                options.requests * _SHARES[body] * (_SHARE_ALONE if concurrency == 1 else 1.0)
                            ),
                            concurrency=concurrency,
                            folder=folder,
                        )
                        direct = _p50(ports[0], path) if concurrency == 1 else None
                        # Whoever comes second finds another machine: they take turns.
                        for proxy in pair if number % 2 == 0 else pair[::-1]:
                            row = measure(proxy)
                            added = None if direct is None else _p50(proxy.port, path) - direct
                            rows.append(
                                {
                                    "round": number,
                                    "body": body,
                                    "proxy": proxy.name,
                                    **row,
                                    "direct_p50_us": None if direct is None else round(direct * 1e6, 1),
                                    "added_p50_us": None if added is None else round(added * 1e6, 1),
                                    "proxy_core": first,
                                    "other_cores": len(others),
                                    "compiled": package is not None,
                                }
                            )
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By body and concurrency: medians over the rounds, and of the gateway's ratio to nginx in each round."""
    found = []
    for body, concurrency in dict.fromkeys((row["body"], row["concurrency"]) for row in rows):
        mine, peer = (
            [
                row
                for row in rows
                if (row["body"], row["concurrency"], row["proxy"]) == (body, concurrency, name)
            ]
            for name in ("gateway", "nginx")
        )
        ratios = [
            ours["cpu_us_per_request"] / theirs["cpu_us_per_request"]
            for ours, theirs in zip(mine, peer, strict=True)
        ]
        line: dict[str, Any] = {"body": body, "concurrency": concurrency}
        for column in ("requests_per_second", "cpu_us_per_request", "added_p50_us"):
            for name, side in (("gateway", mine), ("nginx", peer)):
                values = [row[column] for row in side if row[column] is not None]
                line[f"{name}_{column}"] = round(statistics.median(values), 1) if values else None
        line["cpu_ratios"] = " ".join(f"{ratio:.2f}" for ratio in ratios)
        line["cpu_ratio"] = round(statistics.median(ratios), 2)
        found.append(line)
    return found


def request(shape: Sequence[int]) -> pb.ModelInferRequest:
    """A valid request with one UINT8 tensor."""
    message = pb.ModelInferRequest(model_name=MODEL)
    message.inputs.add(name="x", datatype="UINT8", shape=shape)
    size = 1
    for length in shape:
        size *= length
    message.raw_input_contents.append(bytes(size))
    return message


@contextmanager
def workers() -> Iterator[list[int]]:
    """Ports of no-op workers, while they run."""
    with ExitStack() as stack:
        ports = []
        for _ in range(WORKERS):
            port = processes.free_port()
            command = [sys.executable, "-m", "benchmarks.no_op_worker", str(port)]
            stack.enter_context(
                processes.started(
                    "a no-op worker", command, ready=partial(processes.listens, port), timeout_seconds=30
                )
            )
            ports.append(port)
        yield ports


def answered(ports: Sequence[int]) -> int:
    """How many requests the workers on these ports have answered so far."""
    total = 0
    for port in ports:
        with create_sync_channel(f"127.0.0.1:{port}") as channel:
            answer = rpc.GRPCInferenceServiceStub(channel).ModelStatistics(pb.ModelStatisticsRequest())
            total += sum(model.inference_count for model in answer.model_stats)
    return total


def _started(stack: ExitStack, cores: Cores, start: Callable[[], Any]) -> Proxy:
    with processes.on_cores(cores.proxy):
        proxy: Proxy = stack.enter_context(start())
    return proxy


def _measure(
    proxy: Proxy, *, ports: Sequence[int], body: Path, requests: int, concurrency: int, folder: Path
) -> dict[str, Any]:
    load = partial(h2load.run, proxy.port, METHOD, body, concurrency=concurrency, log=folder / "log")
    _check(proxy, body)
    load(requests=min(WARM_UP_REQUESTS, requests))
    at_workers, counted = answered(ports), proxy.answered() if proxy.answered else 0
    before = proxy.cpu_seconds()
    result = load(requests=requests)
    used = proxy.cpu_seconds() - before
    reached = answered(ports) - at_workers
    ok = proxy.answered() - counted if proxy.answered else None
    _check(proxy, body)
    if result.failed or reached != requests or ok not in (None, requests):
        raise RuntimeError(
            f"{proxy.name}: of {requests} requests {result.failed} failed, {reached} reached a worker, "
            f"{ok} ended with grpc-status 0"
        )
    return {
        "concurrency": concurrency,
        "requests": requests,
        "failed": result.failed,
        "answered_by_workers": reached,
        "ok_by_grpc_status": ok,
        "requests_per_second": round(result.requests_per_second, 1),
        "p50_ms": round(result.p50 * 1e3, 3),
        "p99_ms": round(result.p99 * 1e3, 3),
        "cpu_us_per_request": round(used / requests * 1e6, 1),
    }


def _check(proxy: Proxy, body: Path) -> None:
    """A stock client gets the right answer through the proxy; raises grpc.RpcError or RuntimeError if not."""
    message = pb.ModelInferRequest.FromString(body.read_bytes()[5:])
    with create_sync_channel(f"127.0.0.1:{proxy.port}") as channel:
        answer = rpc.GRPCInferenceServiceStub(channel).ModelInfer(message, timeout=10)
    if answer.model_name != MODEL or len(answer.raw_output_contents) != 1:
        raise RuntimeError(f"{proxy.name} gave a wrong answer: {answer}")


def _p50(port: int, body: Path) -> float:
    """Median seconds of a call, one at a time, on a connection of its own."""
    command = [sys.executable, "-m", "benchmarks.closed_loop", str(port), METHOD, str(body)]
    command.append(str(LATENCY_REQUESTS))
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=processes.ROOT).stdout
    seconds: list[float] = json.loads(output)
    return statistics.median(seconds)
