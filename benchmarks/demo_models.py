"""One worker serving a demo model to a closed loop, on both transports in turn."""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import h2load
from benchmarks.worker_process import WorkerProcess, worker
from reactant_proto import inference_pb2 as pb

METHOD = "inference.GRPCInferenceService/ModelInfer"
TRANSPORTS = ("native", "grpcio")
WARM_UP_REQUESTS = 2000


def missing() -> str | None:
    """What these benchmarks lack here."""
    return None if h2load.available() else "h2load is not installed"


def run(model: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows, one per round and transport."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        models = options.models or build(scratch / "models", model)
        body = h2load.write_body(scratch / "body", request(model))
        environment = {
            "INFERENCE_SERVER_MODELS_INCLUDE": model,
            "INFERENCE_SERVER_RUNTIME_BACKEND": options.backend,
        }
        for number in range(options.rounds):
            for transport in TRANSPORTS:
                with worker(models, scratch / "cache", transport, environment) as process:
                    warm_up = min(WARM_UP_REQUESTS, options.requests)
                    load = partial(measure, process, body, scratch / "log", concurrency=options.concurrency)
                    load(requests=warm_up)
                    row = load(requests=options.requests)
                rows.append({"round": number, "transport": transport, **row})
    return rows


def build(folder: Path, model: str) -> Path:
    """Writes the bundle of a demo model into `folder`, and returns that."""
    subprocess.run([sys.executable, "-m", "reactant_examples.build", "--out", str(folder), model], check=True)
    return folder


def request(model: str) -> pb.ModelInferRequest:
    """A request with one row."""
    message = pb.ModelInferRequest(model_name=model)
    if model == "digits":
        message.inputs.add(name="image", datatype="FP32", shape=[1, 8, 8])
        message.raw_input_contents.append(np.full((1, 8, 8), 8, np.float32).tobytes())
    else:
        text = b"How do I reset the password of my account?"
        message.inputs.add(name="text", datatype="BYTES", shape=[1])
        message.raw_input_contents.append(struct.pack("<I", len(text)) + text)
    return message


def measure(
    process: WorkerProcess, body: Path, log: Path, *, requests: int, concurrency: int
) -> dict[str, Any]:
    """One closed loop of `requests` messages `body`, as seen by the load and by the worker's metrics."""
    counters = ("worker_dispatch_total", "worker_rows_served_total")
    before = [process.metric(name) for name in counters]
    answered, cpu = process.metric("worker_requests_total", code="OK"), process.cpu_seconds()
    load = h2load.run(
        process.grpc_port,
        METHOD,
        body,
        requests=requests,
        concurrency=concurrency,
        log=log,
    )
    used = process.cpu_seconds() - cpu
    dispatches, rows = (process.metric(name) - was for name, was in zip(counters, before, strict=True))
    ok = int(process.metric("worker_requests_total", code="OK") - answered)
    return {
        "concurrency": concurrency,
        "requests": requests,
        "failed": load.failed,
        "ok_by_grpc_status": ok,
        "requests_per_second": round(load.requests_per_second, 1),
        "p50_ms": round(load.p50 * 1e3, 3),
        "p99_ms": round(load.p99 * 1e3, 3),
        "cpu_us_per_request": round(used / requests * 1e6, 1),
        "rows_per_dispatch": round(rows / dispatches, 2) if dispatches else None,
    }
