"""The code of bundles, loaded as a server loads it, and the bundles, for several tests."""

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

from reactant_core.bundle.repository import Bundle
from reactant_examples import minilm
from reactant_examples.build import main
from reactant_examples.minilm.checkpoint import model_file

Tokenize = Callable[[list[bytes]], dict[str, NDArray[Any]]]


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
    (folder,) = minilm.__path__
    bundle = FakeBundle(model_file("tokenizer.json").parent, FakeManifest())
    return _loaded("hooks_under_test", Path(folder) / "model.py", bundle)


@pytest.fixture(scope="session")
def tokenize_as() -> Callable[[Bundle], Tokenize]:
    """Loads the `model.py` that lies in a bundle, and gives its `preprocess`."""

    def load(bundle: Bundle) -> Tokenize:
        hooks = _loaded(f"hooks_of_{bundle.name}", bundle.path / "model.py", bundle)
        return lambda texts: _preprocessed(hooks, texts)

    return load


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with all bundles; do not change it.

    Building takes some ten seconds. tests/e2e takes the same folder, and finds nothing to build after this.
    """
    out = tmp_path_factory.getbasetemp() / "demo-bundles"
    assert main(["--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def tokenize(minilm_hooks: ModuleType) -> Tokenize:
    """`preprocess` of minilm; raises an exception that names the refusal."""

    return lambda texts: _preprocessed(minilm_hooks, texts)


def _preprocessed(hooks: ModuleType, texts: list[bytes]) -> dict[str, NDArray[Any]]:
    elements = np.empty(len(texts), np.object_)
    elements[:] = texts
    tensors: dict[str, NDArray[Any]] = hooks.preprocess({"text": elements}, FakeRequest())
    return tensors


@pytest.fixture(scope="session")
def meta_of() -> Callable[[Bundle], ModuleType]:
    """Loads the `model.py` that lies in a meta's bundle."""
    return lambda bundle: _loaded(f"meta_{bundle.name}", bundle.path / "model.py", bundle)


def _loaded(name: str, file: Path, bundle: Any) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if hasattr(module, "setup"):
        module.setup(bundle)
    return module
