"""Artifacts for the tests: exported from JAX functions or written as MLIR text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import pytest
from jax import export

from reactant_programs import cache

Export = Callable[..., Path]


@pytest.fixture
def export_program(tmp_path: Path) -> Export:
    """Writes `function` traced for arguments of (shape, dtype) as an artifact."""

    def write(
        function: Callable[..., Any],
        *arguments: tuple[Sequence[int], Any],
        name: str = "model.mlir",
        platforms: Sequence[str] = ("cpu",),
        **jit_options: Any,
    ) -> Path:
        avals = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in arguments]  # type: ignore[no-untyped-call]
        exported = export.export(jax.jit(function, **jit_options), platforms=platforms)(*avals)
        path = tmp_path / name
        path.write_bytes(exported.mlir_module_serialized)
        return path

    return write


@pytest.fixture
def write_text(tmp_path: Path) -> Callable[..., Path]:
    """Writes a module whose @main has the given signature and body, in MLIR text."""

    def write(
        signature: str,
        body: str,
        *,
        attributes: str = "",
        name: str = "model.mlir",
        module: str = "m",
        extra: str = "",
    ) -> Path:
        path = tmp_path / name
        marks = f" attributes {{{attributes}}}" if attributes else ""
        path.write_text(
            f"module @{module}{marks} {{ func.func public @main{signature} {{\n{body}\n}}\n{extra} }}"
        )
        return path

    return write


@pytest.fixture
def executable_cache(tmp_path: Path) -> Iterator[Path]:
    """A fresh cache directory, in use for the length of the test."""
    directory = tmp_path / "cache"
    cache.enable_cache(directory)
    yield directory
    cache.disable_cache()


@pytest.fixture
def device() -> jax.Device:
    return jax.devices("cpu")[0]


@pytest.fixture(scope="session")
def python() -> str:
    return sys.executable
