"""Bundles to break, and a way to see what reading one costs."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from reactant_core.bundle.weights import write_weights

MANIFEST = """\
format_version: "3"
executable_inputs:
  - {name: x, dtype: f32, shape: nk, dims: {k: 4}}
executable_outputs:
  - {name: y, dtype: f32, shape: nm, dims: {m: 3}}
batching: {compiled_batch_sizes: [1, 8]}
"""

_MEASURE = """
import sys
from pathlib import Path
from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.repository import read_bundle

def peak_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

read_bundle(Path(sys.argv[1]))
before = peak_kib()
for name in sys.argv[2:]:
    try:
        read_bundle(Path(name))
    except BundleError:
        pass
    else:
        sys.exit(f"{name} was accepted")
print(peak_kib() - before)
"""

MakeBundle = Callable[..., Path]


@pytest.fixture
def make_bundle(tmp_path: Path) -> MakeBundle:
    """Writes a bundle that is sound unless a file in it is replaced (or, by None, left out)."""

    def make(
        files: Mapping[str, str | bytes | None] | None = None,
        *,
        name: str = "model-a",
        manifest: str = MANIFEST,
        weights: Mapping[str, np.ndarray] | None = None,
    ) -> Path:
        path = tmp_path / "models" / name
        path.mkdir(parents=True)
        (path / "manifest.yaml").write_text(manifest)
        for batch in (1, 8):
            (path / f"model.b{batch}.mlir").write_bytes(b"program")
        if weights is None:
            weights = {"w": np.ones((4, 3), np.float32), "b": np.zeros(3, np.float32)}
        write_weights(path / "weights.safetensors", weights, list(weights))
        for file, content in (files or {}).items():
            if content is None:
                (path / file).unlink()
            else:
                (path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


@pytest.fixture
def peak_growth_mib() -> Callable[[Path, list[Path]], float]:
    """How far refusing bundles raises the memory peak of a process that has read a sound one."""

    def measure(sound: Path, hostile: list[Path]) -> float:
        command = [sys.executable, "-c", _MEASURE, str(sound), *map(str, hostile)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return int(done.stdout) / 1024

    return measure


@pytest.fixture
def write_raw(tmp_path: Path) -> Callable[..., Path]:
    """Writes a weight file from a header (JSON text or what is dumped to it) and the data."""

    def write(header: object, data: bytes = b"", *, length: int | None = None) -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / "weights.safetensors"
        path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
        return path

    return write
