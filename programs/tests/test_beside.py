"""Compiling in a child process: the same programs, and whatever becomes of the child, they come to run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from reactant_core.bundle.errors import BundleError
from reactant_core.testing import eventually_sync
from reactant_programs import beside, compilation
from reactant_programs import compile as compile_module
from reactant_programs.artifact import Artifact, read_artifact
from reactant_programs.beside import CompilerChild
from reactant_programs.cache import CacheStatistics, cache_statistics
from reactant_programs.compilation import Answer
from reactant_programs.compile import compile_artifact

PathMaker = Callable[..., Path]
Build = Callable[[Artifact], CacheStatistics]

X = np.linspace(-1, 1, 4, dtype=np.float32)


@pytest.fixture
def make(export_program: PathMaker) -> Callable[[float], Artifact]:
    """A program that multiplies by a number."""

    def artifact(factor: float) -> Artifact:
        return read_artifact(export_program(lambda x: x * factor, ((4,), np.float32), name=f"{factor}.mlir"))

    return artifact


@pytest.fixture
def build(executable_cache: Path, device: jax.Device) -> Build:
    """Compiles beside, runs, and gives what the counters grew by."""

    def run(artifact: Artifact) -> CacheStatistics:
        before = cache_statistics()
        (result,) = compile_artifact(artifact, device, beside=True)(X)
        after = cache_statistics()
        np.testing.assert_allclose(result, X * float(artifact.path.stem), rtol=1e-6)
        return CacheStatistics(
            after.hits - before.hits,
            after.misses - before.misses,
            after.compile_seconds - before.compile_seconds,
        )

    return run


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., CompilerChild]]:
    """Has programs compiled by this child."""
    made = []

    def put(*arguments: Any, **options: Any) -> CompilerChild:
        made.append(CompilerChild(*arguments, **options))
        monkeypatch.setattr(compile_module, "_child", made[-1])
        monkeypatch.setattr(compile_module, "_SMALL_BYTES", 0)
        return made[-1]

    yield put
    for child in made:
        child.close()


def script(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled in this process any more."""
    from jax._src import compiler

    def compiled_here(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled in this process")

    monkeypatch.setattr(compiler, "backend_compile_and_load", compiled_here)


@pytest.mark.slow
def test_the_child_compiles_once_and_ends_when_idle(
    executable_cache: Path,
    build: Build,
    make: Callable[[float], Artifact],
    use: Callable[..., CompilerChild],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = use(idle_seconds=1.0)
    forbid(monkeypatch)

    cold = build(make(2.0))
    assert (cold.hits, cold.misses) == (0, 1)
    assert cold.compile_seconds > 0
    assert len(list((executable_cache / "executables").iterdir())) == 1
    assert build(make(2.0)) == CacheStatistics(1, 0, 0.0)
    assert build(make(3.0)).misses == 1

    life = child._life
    assert life is not None
    eventually_sync(lambda: life.ended, 60, what="the idle child ends")
    assert build(make(4.0)).misses == 1
    assert child._life is not life


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_no_second_compilation(
    executable_cache: Path,
    build: Build,
    make: Callable[[float], Artifact],
    use: Callable[..., CompilerChild],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use()
    forbid(monkeypatch)
    (executable_cache / "executables").rmdir()
    (executable_cache / "executables").write_text("")

    assert build(make(2.0)).misses == 1


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (script("import sys; sys.exit('no jax today')"), "exit code 1: no jax today"),
        (script("import os; os.kill(os.getpid(), 9)"), "signal 9"),
        (("/nowhere/python",), "cannot be started"),
    ],
    ids=["fails", "killed", "missing"],
)
def test_a_child_that_fails_leaves_it_to_this_process(
    build: Build,
    make: Callable[[float], Artifact],
    use: Callable[..., CompilerChild],
    caplog: pytest.LogCaptureFixture,
    command: tuple[str, ...],
    reason: str,
) -> None:
    use(command)

    assert build(make(2.0)).misses == 1

    (warning,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "compiling in the server's process instead" in warning
    assert reason in warning


def test_a_program_that_crashes_the_compiler_is_refused(
    executable_cache: Path,
    make: Callable[[float], Artifact],
    use: Callable[..., CompilerChild],
    device: jax.Device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forbid(monkeypatch)
    use(script("import os; os.kill(os.getpid(), 11)"))

    with pytest.raises(BundleError, match=r"2\.0\.mlir: the compiler crashes on it \(.*signal 11\)"):
        compile_artifact(make(2.0), device, beside=True)


def test_a_child_that_is_set_up_differently_is_used_no_more(
    build: Build,
    make: Callable[[float], Artifact],
    use: Callable[..., CompilerChild],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = []

    def ask(_: object, artifact: Artifact) -> Answer:
        asked.append(artifact)
        return Answer(0, "another key", b"another executable")

    monkeypatch.setattr(beside._Life, "ask", ask)
    use(script("input()"))

    assert build(make(2.0)).misses == 1
    assert build(make(3.0)).misses == 1

    assert len(asked) == 1
    assert any("set up differently" in record.getMessage() for record in caplog.records)


def test_what_does_not_compile_is_told_as_here(
    executable_cache: Path,
    make: Callable[[float], Artifact],
    use: Callable[..., CompilerChild],
    device: jax.Device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jax._src import compiler

    def refused(*_: Any, **__: Any) -> None:
        raise ValueError("XLA does not like it")

    monkeypatch.setattr(beside._Life, "ask", lambda life, artifact: Answer(0, fault="ValueError: no"))
    monkeypatch.setattr(compiler, "backend_compile_and_load", refused)
    use(script("input()"))

    with pytest.raises(BundleError, match="does not compile for cpu: XLA does not like it"):
        compile_artifact(make(2.0), device, beside=True)


def test_without_a_cache_there_is_no_child(
    make: Callable[[float], Artifact], use: Callable[..., CompilerChild], device: jax.Device
) -> None:
    child = use()
    (result,) = compile_artifact(make(2.0), device, beside=True)(X)
    np.testing.assert_allclose(result, X * 2)
    assert child._life is None


def test_a_program_of_few_operations_is_not_worth_a_child(
    build: Build,
    make: Callable[[float], Artifact],
    use: Callable[..., CompilerChild],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = use()
    monkeypatch.setattr(compile_module, "_SMALL_BYTES", 1024)
    assert build(make(2.0)).misses == 1
    assert child._life is None


PARENT = """
import sys, time
from pathlib import Path
from reactant_programs.beside import CompilerChild

child = CompilerChild()
print(child._running(Path(sys.argv[1]))._child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)

    def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"

    eventually_sync(gone, 60, what="the child ends")


def test_messages_pass_whole() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as source, os.fdopen(write, "wb") as target:
        compilation.write(target, Answer(7, "key", b"\0" * 1000))
        compilation.write(target, "next")
        assert compilation.read(source) == Answer(7, "key", b"\0" * 1000)
        assert compilation.read(source) == "next"
        target.close()
        with pytest.raises(EOFError):
            compilation.read(source)
