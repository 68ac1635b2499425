"""The hooks of minilm, loaded as a server loads them, for several tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reactant_examples import minilm
from reactant_examples.minilm.checkpoint import model_file


class Refused(Exception):
    """What FakeRequest raises where a server would answer INVALID_ARGUMENT."""


class FakeRequest:
    """The part of a hook's `request` that these hooks use."""

    def invalid(self, message: str) -> None:
        raise Refused(message)


@dataclass(frozen=True)
class FakeManifest:
    input_shapes: tuple[dict[str, int], ...] = ({"s": 32}, {"s": 128}, {"s": 256})


@dataclass(frozen=True)
class FakeBundle:
    path: Path
    manifest: FakeManifest


@pytest.fixture(scope="session")
def minilm_hooks() -> ModuleType:
    """`model.py` of minilm after its `setup`, with the real vocabulary."""
    name = "hooks_under_test"
    (folder,) = minilm.__path__
    spec = importlib.util.spec_from_file_location(name, Path(folder) / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    module.setup(FakeBundle(model_file("tokenizer.json").parent, FakeManifest()))
    return module


@pytest.fixture(scope="session")
def tokenize(minilm_hooks: ModuleType) -> Callable[[list[bytes]], dict[str, NDArray[Any]]]:
    """`preprocess` of minilm; raises an exception that names the refusal."""

    def preprocess(texts: list[bytes]) -> dict[str, NDArray[Any]]:
        elements = np.empty(len(texts), np.object_)
        elements[:] = texts
        tensors: dict[str, NDArray[Any]] = minilm_hooks.preprocess({"text": elements}, FakeRequest())
        return tensors

    return preprocess
