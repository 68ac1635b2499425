"""Damaged, foreign and malicious artifacts: a BundleError that names the file, and the process lives."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reactant_core.bundle.errors import BundleError
from reactant_programs import artifact as artifact_module
from reactant_programs.artifact import read_artifact
from reactant_programs.inspector import Inspector, InspectorError

PathMaker = Callable[..., Path]

STAMP = re.compile(rb"StableHLO_v\d+\.\d+\.\d+")


def refusal(path: Path) -> str:
    with pytest.raises(BundleError) as caught:
        read_artifact(path)
    assert all(fault.startswith(f"{path.name}: ") for fault in caught.value.faults)
    return str(caught.value)


@pytest.fixture
def good(export_program: PathMaker) -> bytes:
    return export_program(lambda x, w: x @ w, ((2, 3), np.float32), ((3, 2), np.float32)).read_bytes()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "neither MLIR bytecode nor MLIR text"),
        (b"\n \n", "neither MLIR bytecode nor MLIR text"),
        (random.Random(0).randbytes(1000), "neither MLIR bytecode nor MLIR text"),
        (b"module { \0 }", "neither MLIR bytecode nor MLIR text"),
        (b"hello", "does not parse"),
        (b"module {", "does not parse"),
        (b"ML\xefR", "not a StableHLO portable artifact"),
        (b"ML\xefR" + random.Random(1).randbytes(1000), "not a StableHLO portable artifact"),
        (
            b"ML\xefR\rMLIR23.0.0\0" + bytes(50),
            "MLIR bytecode of MLIR23.0.0, not a StableHLO portable artifact",
        ),
        (b"ML\xefR\rStableHLO_vone.two\0" + bytes(50), "is not of the form X.Y.Z"),
        (
            b"ML\xefR\rStableHLO_v1.0.0\0" + random.Random(2).randbytes(1000),
            "does not parse (StableHLO 1.0.0",
        ),
    ],
)
def test_junk(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "model.b8.mlir"
    path.write_bytes(data)

    assert reason in refusal(path)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
def test_truncated(tmp_path: Path, good: bytes, keep: float) -> None:
    path = tmp_path / "cut.mlir"
    path.write_bytes(good[: int(len(good) * keep)])

    assert "does not parse" in refusal(path)


@pytest.mark.parametrize("version", ["99.0.0", "1.99.0"])
def test_l10_a_newer_version_is_named_beside_ours(tmp_path: Path, good: bytes, version: str) -> None:
    from jaxlib.mlir.dialects import stablehlo

    path = tmp_path / "future.mlir"
    path.write_bytes(STAMP.sub(f"StableHLO_v{version}".encode(), good, count=1))

    reason = refusal(path)

    assert f"written for StableHLO {version}" in reason
    assert f"reads up to {stablehlo.get_current_version()}" in reason


def test_a_version_before_the_readers_window(tmp_path: Path, good: bytes) -> None:
    path = tmp_path / "old.mlir"
    path.write_bytes(STAMP.sub(b"StableHLO_v0.1.0", good, count=1))

    assert "written for StableHLO 0.1.0 and this server reads" in refusal(path)


def test_what_a_worker_cannot_run(write_text: PathMaker) -> None:
    identity = "return %x : tensor<2xf32>"
    platform_index = (
        '(%p: tensor<i32> {jax.global_constant = "_platform_index"}, %x: tensor<i32>) -> tensor<i32>'
    )
    call = "%0 = stablehlo.custom_call @{}(%x) : (tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32>"
    plain = "(%x: tensor<2xf32>) -> tensor<2xf32>"

    dynamic = refusal(write_text("(%x: tensor<?x2xf32>) -> tensor<?x2xf32>", "return %x : tensor<?x2xf32>"))
    assert "argument 0 is tensor<?x2xf32>: dynamic shapes" in dynamic
    assert "result 0" in dynamic

    assert "several devices" in refusal(
        write_text(plain, identity, attributes="mhlo.num_partitions = 2 : i32")
    )
    add_index = "%0 = stablehlo.add %p, %x : tensor<i32>\nreturn %0 : tensor<i32>"
    assert "does not say which" in refusal(write_text(platform_index, add_index))
    for target in ("xla_ffi_python_cpu_callback", "my_kernel", "__gpu$xla.gpu.triton"):
        assert f"not allowed (custom_call {target})" in refusal(
            write_text(plain, call.format(f'"{target}"' if "$" in target else target))
        )


def test_a_custom_call_hidden_in_a_helper_function(write_text: PathMaker) -> None:
    helper = (
        "func.func private @h(%y: tensor<2xf32>) -> tensor<2xf32> {\n"
        "%1 = stablehlo.custom_call @evil(%y) : (tensor<2xf32>) -> tensor<2xf32>\n"
        "return %1 : tensor<2xf32> }"
    )
    body = "%0 = call @h(%x) : (tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32>"
    path = write_text("(%x: tensor<2xf32>) -> tensor<2xf32>", body, extra=helper)

    assert "custom_call evil" in refusal(path)


def test_no_main(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text("module { func.func @other() { return } }")

    assert "no function @main" in refusal(path)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be opened" in refusal(tmp_path / "missing.mlir")
    (tmp_path / "folder.mlir").mkdir()
    refusal(tmp_path / "folder.mlir")
    os.mkfifo(tmp_path / "pipe.mlir")
    assert "not a regular file" in refusal(tmp_path / "pipe.mlir")
    monkeypatch.setattr(artifact_module, "SIZE_LIMIT_BYTES", 10)
    (tmp_path / "large.mlir").write_bytes(bytes(11))
    assert "is 11 bytes; at most 10 are read" in refusal(tmp_path / "large.mlir")


@pytest.mark.slow
def test_deep_nesting_ends_in_an_error(tmp_path: Path) -> None:
    path = tmp_path / "deep.mlir"
    path.write_text("module { " * 200_000 + "}" * 200_000)

    refusal(path)


@pytest.mark.slow
def test_damage_never_ends_the_process(
    tmp_path: Path, good: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some of these crash MLIR's reader or send it into an endless loop: each must end as a BundleError."""
    damage = random.Random(5)
    path = tmp_path / "damaged.mlir"
    reasons = []
    for _ in range(12):
        data = bytearray(good)
        for _ in range(4):
            data[damage.randrange(len(data))] ^= 1 << damage.randrange(8)
        path.write_bytes(data)
        try:
            read_artifact(path)
        except BundleError as error:
            reasons.append(str(error))

    assert len(reasons) > 6
    assert capfd.readouterr() == ("", "")


def test_a_crash_of_the_parser_is_told_and_survived() -> None:
    crashing = Inspector((sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"))
    failing = Inspector((sys.executable, "-c", "raise SystemExit('no module named x')"))
    missing = Inspector(("/nonexistent/python",))

    with pytest.raises(InspectorError, match=r"crashed on it \(signal 11\)"):
        crashing.inspect(b"module {}")
    with pytest.raises(InspectorError, match="exit code 1: no module named x"):
        failing.inspect(b"module {}")
    with pytest.raises(InspectorError, match="cannot be started"):
        missing.inspect(b"module {}")
    for inspector in (crashing, failing, missing):
        inspector.close()


@pytest.mark.slow
def test_the_inspector_starts_again_after_its_child_ended() -> None:
    inspector = Inspector()
    text = b"module { func.func public @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> } }"
    first = inspector.inspect(text)
    inspector.close()

    assert inspector.inspect(text) == first
    inspector.close()
