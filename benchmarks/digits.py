"""One worker serving `digits` to a closed loop, on both transports in turn."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import h2load
from benchmarks.worker_process import WorkerProcess, worker
from reactant_proto import inference_pb2 as pb

METHOD = "inference.GRPCInferenceService/ModelInfer"
TRANSPORTS = ("native", "grpcio")


def missing() -> str | None:
    """What this benchmark lacks here."""
    return None if h2load.available() else "h2load is not installed"


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows, one per round and transport."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        models = scratch / "models"
        subprocess.run(
            [sys.executable, "-m", "reactant_examples.build", "--out", str(models), "digits"], check=True
        )
        request = pb.ModelInferRequest(model_name="digits")
        request.inputs.add(name="image", datatype="FP32", shape=[1, 8, 8])
        request.raw_input_contents.append(np.full((1, 8, 8), 8, np.float32).tobytes())
        body = h2load.write_body(scratch / "body", request)
        for number in range(options.rounds):
            for transport in TRANSPORTS:
                with worker(models, scratch / "cache", transport, {}) as process:
                    _measure(process, body, scratch, options, requests=2000)  # warm-up, not counted
                    row = _measure(process, body, scratch, options, requests=options.requests)
                rows.append({"round": number, "transport": transport, **row})
    return rows


def _measure(
    process: WorkerProcess, body: Path, scratch: Path, options: argparse.Namespace, *, requests: int
) -> dict[str, Any]:
    counters = ("worker_dispatch_total", "worker_rows_served_total")
    before = [process.metric(name) for name in counters]
    answered, cpu = process.metric("worker_requests_total", code="OK"), process.cpu_seconds()
    load = h2load.run(
        process.grpc_port,
        METHOD,
        body,
        requests=requests,
        concurrency=options.concurrency,
        log=scratch / "log",
    )
    used = process.cpu_seconds() - cpu
    dispatches, rows = (process.metric(name) - was for name, was in zip(counters, before, strict=True))
    ok = int(process.metric("worker_requests_total", code="OK") - answered)
    return {
        "concurrency": options.concurrency,
        "requests": requests,
        "failed": load.failed,
        "ok_by_grpc_status": ok,
        "requests_per_second": round(load.requests_per_second, 1),
        "p50_ms": round(load.p50 * 1e3, 3),
        "p99_ms": round(load.p99 * 1e3, 3),
        "cpu_us_per_request": round(used / requests * 1e6, 1),
        "rows_per_dispatch": round(rows / dispatches, 2) if dispatches else None,
    }
