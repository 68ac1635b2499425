"""The executable cache: warm starts compile nothing, and nothing on the disk can break a start."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from reactant_programs.artifact import read_artifact
from reactant_programs.cache import CacheStatistics, cache_statistics, enable_cache
from reactant_programs.compile import compile_artifact

Array = np.ndarray[Any, Any]
Build = Callable[..., tuple[CacheStatistics, Array]]
PathMaker = Callable[..., Path]

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)

START = """
import json, sys
from pathlib import Path
import jax, numpy as np
from reactant_programs.artifact import read_artifact
from reactant_programs.cache import cache_statistics, enable_cache
from reactant_programs.compile import compile_artifact

enable_cache(Path(sys.argv[1]))
program = compile_artifact(read_artifact(Path(sys.argv[2])), jax.devices("cpu")[0])
(result,) = program(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))
seen = cache_statistics()
print(json.dumps({"hits": seen.hits, "misses": seen.misses, "result": np.asarray(result).tolist()}))
"""


def start(python: str, cache_dir: Path, program: Path) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-W", "error", "-c", START, str(cache_dir), str(program)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.fixture
def program_file(export_program: PathMaker) -> Path:
    return export_program(lambda x: jnp.tanh(x) * 2, ((2, 4), np.float32))


@pytest.fixture
def build(program_file: Path, device: jax.Device) -> Build:
    """Reads, compiles and runs the program; gives what the counters grew by, and the result."""

    def run(path: Path = program_file) -> tuple[CacheStatistics, Array]:
        before = cache_statistics()
        (result,) = compile_artifact(read_artifact(path), device)(X)
        after = cache_statistics()
        grown = CacheStatistics(
            after.hits - before.hits,
            after.misses - before.misses,
            after.compile_seconds - before.compile_seconds,
        )
        return grown, np.asarray(result)

    return run


def entries(cache_dir: Path) -> list[Path]:
    return sorted(path for path in cache_dir.rglob("*") if path.is_file())


@pytest.mark.slow
def test_l8_processes_start_cold_on_one_directory_and_the_next_compiles_nothing(
    python: str, tmp_path: Path, program_file: Path
) -> None:
    cache_dir = tmp_path / "deep" / "cache"
    command = [python, "-W", "error", "-c", START, str(cache_dir), str(program_file)]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    outcomes = [child.communicate(timeout=100) for child in children]

    assert [child.returncode for child in children] == [0] * 3, outcomes
    assert [noise for _, noise in outcomes] == [""] * 3
    cold = [json.loads(output) for output, _ in outcomes]
    assert [seen["hits"] + seen["misses"] for seen in cold] == [1] * 3
    assert any(seen["misses"] for seen in cold)

    stored = entries(cache_dir)
    warm = start(python, cache_dir, program_file.rename(tmp_path / "another name.mlir"))

    assert (warm["hits"], warm["misses"]) == (1, 0)
    assert [seen["result"] for seen in cold] == [warm["result"]] * 3
    np.testing.assert_allclose(warm["result"], np.tanh(X) * 2, rtol=1e-6)
    assert entries(cache_dir) == stored


@pytest.mark.slow
def test_equal_contents_hit_and_others_miss(
    executable_cache: Path, build: Build, export_program: PathMaker, tmp_path: Path
) -> None:
    first, result = build()
    again, same = build()
    copied = tmp_path / "copy.mlir"
    copied.write_bytes((tmp_path / "model.mlir").read_bytes())
    copy, _ = build(copied)
    other, _ = build(export_program(lambda x: jnp.tanh(x) * 3, ((2, 4), np.float32), name="other.mlir"))

    assert (first.hits, first.misses) == (0, 1)
    assert first.compile_seconds > 0
    assert again == copy == CacheStatistics(1, 0, 0.0)
    assert (other.hits, other.misses) == (0, 1)
    np.testing.assert_array_equal(result, same)
    np.testing.assert_allclose(result, np.tanh(X) * 2, rtol=1e-6)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: random.Random(3).randbytes(len(data)),
        lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
        lambda data: data + b"more",
    ],
    ids=["halved", "emptied", "randomised", "one bit", "longer"],
)
def test_l8_a_damaged_entry_costs_a_compilation_and_is_mended(
    executable_cache: Path, build: Build, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    _, right = build()
    damaged = entries(executable_cache)
    assert len(damaged) == 2
    for path in damaged:
        path.write_bytes(damage(path.read_bytes()))

    second, result = build()
    third, _ = build()

    assert (second.hits, second.misses) == (0, 1)
    assert (third.hits, third.misses) == (1, 0)
    np.testing.assert_array_equal(result, right)
    assert sum("damaged" in record.getMessage() for record in caplog.records) == 2


def test_l8_a_directory_that_cannot_be_made_or_written(
    executable_cache: Path, build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a file").write_text("")
    enable_cache(tmp_path / "a file" / "cache")

    for _ in range(2):
        grown, result = build()
        assert (grown.hits, grown.misses) == (0, 1)
        np.testing.assert_allclose(result, np.tanh(X) * 2, rtol=1e-6)
    warnings = [record.getMessage() for record in caplog.records]
    assert any("going on without" in text for text in warnings)
    assert len(warnings) == len(set(warnings))


@pytest.mark.slow
def test_l8_a_read_only_directory_still_serves_what_it_has(
    executable_cache: Path, build: Build, export_program: PathMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    build()
    stored = entries(executable_cache)
    new_program = export_program(lambda x: jnp.tanh(x) * 3, ((2, 4), np.float32), name="new.mlir")
    for call in ("mkdir", "unlink", "replace"):
        monkeypatch.setattr(os, call, read_only)
    monkeypatch.setattr(tempfile, "mkstemp", read_only)

    old, _ = build()
    new, result = build(new_program)

    assert (old.hits, old.misses) == (1, 0)
    assert (new.hits, new.misses) == (0, 1)
    np.testing.assert_allclose(result, np.tanh(X) * 3, rtol=1e-6)
    assert entries(executable_cache) == stored


def test_l8_a_full_disk_leaves_no_half_entry(
    executable_cache: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        grown, result = build()

    assert (grown.hits, grown.misses) == (0, 1)
    np.testing.assert_allclose(result, np.tanh(X) * 2, rtol=1e-6)
    assert entries(executable_cache) == []


@pytest.mark.slow
def test_an_entry_from_another_compiler_that_cannot_be_loaded(executable_cache: Path, build: Build) -> None:
    """Intact on disk, yet not an executable: JAX warns, compiles, and the entry is replaced."""
    from reactant_programs.store import BlobStore

    build()
    folder = executable_cache / "executables"
    (entry,) = folder.iterdir()
    store = BlobStore(folder)
    store.put("any", b"x" * 100)
    (foreign,) = (path for path in folder.iterdir() if path != entry)
    foreign.replace(entry)

    with pytest.warns(UserWarning, match="persistent compilation cache"):
        grown, result = build()
    after, _ = build()

    assert (grown.hits, grown.misses) == (0, 1)
    assert (after.hits, after.misses) == (1, 0)
    np.testing.assert_allclose(result, np.tanh(X) * 2, rtol=1e-6)
