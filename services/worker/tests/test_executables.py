"""Who compiles: this process while nothing serves yet and for GPUs, a child process later."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pytest

from reactant_core.bundle.signature import Signature
from reactant_core.testing import async_test
from reactant_programs.artifact import Artifact
from reactant_worker.models import executables
from reactant_worker.models.executables import Executables
from reactant_worker.pool import WorkPool


@final
@dataclass
class FakeDevice:
    kind: str
    jax: None = None


class Program:
    """Stands in for a compiled one."""


@pytest.mark.parametrize(
    ("kind", "serving", "beside"),
    [("cpu", True, True), ("cpu", False, False), ("cuda", True, False), ("cuda", False, False)],
)
@async_test
async def test_each_program_is_compiled_once_and_by_whom(
    monkeypatch: pytest.MonkeyPatch, kind: str, serving: bool, beside: bool
) -> None:
    compiled: list[bool] = []

    def compile_artifact(artifact: Artifact, device: None, *, beside: bool = False) -> Program:
        compiled.append(beside)
        return Program()

    monkeypatch.setattr(executables, "compile_artifact", compile_artifact)
    artifact = Artifact(Path("model.mlir"), "digest", b"", Signature((), ()), "", (), ())
    device: Any = FakeDevice(kind)
    pools = WorkPool(1, "compile"), WorkPool(1, "beside")
    tested = Executables(*pools)
    tested.serving = serving

    first, second = await asyncio.gather(tested.get(artifact, device), tested.get(artifact, device))

    assert compiled == [beside]
    assert first is second is await tested.get(artifact, device)
    for pool in pools:
        pool.close()
