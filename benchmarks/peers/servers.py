"""The servers of the `worker` benchmark as processes of their own, all with the same function."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from benchmarks import processes
from benchmarks.peers import environments
from benchmarks.peers.function import BATCH_SIZES, FEATURES, MODEL
from benchmarks.worker_process import worker

READY_TIMEOUT_SECONDS: Final = 120
_HERE: Final = Path(__file__).parent

# Batches form while the model is busy, as in ours: neither waits for a batch to fill.
_TRITON_CONFIG: Final = f"""
name: "{MODEL}"
backend: "python"
max_batch_size: {BATCH_SIZES[-1]}
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ {FEATURES} ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ {FEATURES} ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
dynamic_batching {{ }}
"""
_MLSERVER_WAIT_SECONDS: Final = 0.001
"""MLServer batches only what comes within such a time."""


@final
@dataclass(frozen=True, slots=True)
class Server:
    """One that serves `MODEL` on loopback.

    Attributes:
        pids: the processes whose CPU time it costs.
        answered: requests answered without an error so far, by its own count.
    """

    name: str
    port: int
    pids: Sequence[int]
    answered: Callable[[], int]

    def cpu_seconds(self) -> float:
        """User and system time so far, from /proc."""
        return sum(processes.cpu_seconds(pid) for pid in self.pids)


@contextmanager
def ours(models: Path, cache: Path) -> Iterator[Server]:
    """Our worker with its defaults, on the CPU."""
    with worker(models, cache, "auto", {"INFERENCE_SERVER_RUNTIME_BACKEND": "cpu"}) as process:
        yield Server(
            "worker",
            process.grpc_port,
            [process.pid],
            lambda: int(process.metric("worker_requests_total", code="OK")),
        )


@contextmanager
def triton(folder: Path) -> Iterator[Server]:
    """The server of pytriton's wheel with its Python backend and dynamic batching."""
    packages = environments.site_packages("triton")
    tree = packages / "pytriton" / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    backends = folder / "backends"
    shutil.copytree(tree / "backends", backends)
    stub = tree / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy2(stub, backends / "python")
    model = folder / "models" / MODEL
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(_TRITON_CONFIG)
    shutil.copy2(_HERE / "triton_model.py", model / "1" / "model.py")
    shutil.copy2(_HERE / "function.py", model / "1")
    port, http, metrics = (processes.free_port() for _ in range(3))
    command = [
        str(tree / "bin" / "tritonserver"),
        f"--model-repository={model.parent}",
        f"--backend-directory={backends}",
        f"--grpc-port={port}",
        f"--http-port={http}",
        f"--metrics-port={metrics}",
        *(f"--{endpoint}-address=127.0.0.1" for endpoint in ("grpc", "http", "metrics")),
    ]
    libraries = (packages / "nvidia_pytriton.libs", sysconfig.get_config_var("LIBDIR"))
    environment = _environment("triton") | {
        # The interpreter that the stub embeds finds its packages here.
        "PYTHONPATH": str(packages),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
    }
    with processes.started(
        "Triton",
        command,
        ready=lambda: processes.answers_200(f"http://127.0.0.1:{http}/v2/models/{MODEL}/ready"),
        timeout_seconds=READY_TIMEOUT_SECONDS,
        environment=environment,
        log=folder / "log",
    ) as process:
        yield Server(
            "triton",
            port,
            [process.pid, *processes.children(process.pid)],
            lambda: int(processes.metric(metrics, "nv_inference_request_success", model=MODEL)),
        )


@contextmanager
def mlserver(folder: Path) -> Iterator[Server]:
    """MLServer with a custom runtime in its own process and adaptive batching."""
    port, http, metrics = (processes.free_port() for _ in range(3))
    model = folder / MODEL
    model.mkdir(parents=True)
    settings = {
        "host": "127.0.0.1",
        "grpc_port": port,
        "http_port": http,
        "metrics_port": metrics,
        # In the server's own process: faster than a pool of processes where the model costs little.
        "parallel_workers": 0,
    }
    tensor = {"datatype": "FP32", "shape": [-1, FEATURES]}
    model_settings = {
        "name": MODEL,
        "implementation": "mlserver_model.Model",
        "max_batch_size": BATCH_SIZES[-1],
        "max_batch_time": _MLSERVER_WAIT_SECONDS,
        "inputs": [{"name": "x", "parameters": {"content_type": "np"}, **tensor}],
        "outputs": [{"name": "y", **tensor}],
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    (model / "model-settings.json").write_text(json.dumps(model_settings))
    for name in ("mlserver_model.py", "function.py"):
        shutil.copy2(_HERE / name, model)
    with processes.started(
        "MLServer",
        [str(environments.environment("mlserver") / "bin" / "mlserver"), "start", str(folder)],
        ready=lambda: processes.answers_200(f"http://127.0.0.1:{http}/v2/models/{MODEL}/ready"),
        timeout_seconds=READY_TIMEOUT_SECONDS,
        environment=_environment("mlserver"),
        log=folder / "log",
    ) as process:
        yield Server(
            "mlserver",
            port,
            [process.pid, *processes.children(process.pid)],
            lambda: int(
                processes.metric(
                    metrics, "grpc_server_handled_total", grpc_code="OK", grpc_method="ModelInfer"
                )
            ),
        )


def _environment(name: str) -> dict[str, str]:
    """Ours without what points at our own packages."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    binaries = environments.environment(name) / "bin"
    return inherited | {
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "JAX_PLATFORMS": "cpu",
    }
