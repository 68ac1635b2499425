from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from reactant_core.bundle.manifest import parse_manifest
from reactant_core.bundle.repository import Bundle
from reactant_core.errors import InternalError, InvalidArgument
from reactant_worker.models.hooks import HookRequest, load_hooks

MANIFEST = parse_manifest(
    b"""
format_version: "3"
executable_inputs: [{name: x, dtype: f32, shape: n}]
executable_outputs: [{name: y, dtype: f32, shape: n}]
batching: {compiled_batch_sizes: [1]}
"""
)
REQUEST = HookRequest("id-1", MappingProxyType({"a": 1}), 3, None)
X = {"x": np.ones(1, np.float32)}


def bundle(folder: Path, source: str) -> Bundle:
    folder.mkdir(exist_ok=True)
    (folder / "model.py").write_text(source)
    return Bundle("m", folder, MANIFEST, {}, None, folder / "model.py")


def run(folder: Path, source: str, stage: str = "preprocess") -> dict[str, Any]:
    hooks = load_hooks(bundle(folder, source))
    assert hooks is not None
    try:
        return hooks.run(stage, X, REQUEST)
    finally:
        hooks.close()


def test_no_file_means_no_hooks(tmp_path: Path) -> None:
    assert load_hooks(Bundle("m", tmp_path, MANIFEST, {}, None, None)) is None


def test_setup_gets_the_bundle_and_hooks_share_the_module(tmp_path: Path) -> None:
    source = """
def setup(bundle):
    global words
    words = (bundle.path / "words.txt").read_text().split()
    assert bundle.manifest.compiled_batch_sizes == (1,)

def preprocess(inputs, request):
    a, p = request.parameters["a"], request.priority
    return {"x": inputs["x"] * len(words), "who": request.id, "a": a, "p": p}
"""
    (tmp_path / "words.txt").write_text("one two three")
    result = run(tmp_path, source)
    assert result["x"].tolist() == [3.0]
    assert (result["who"], result["a"], result["p"]) == ("id-1", 1, 3)


def test_a_missing_hook_is_the_identity(tmp_path: Path) -> None:
    assert run(tmp_path, "def preprocess(i, r): return i", "postprocess") == X


def test_invalid_is_the_clients_fault(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="model 'm': element 3 is not a date"):
        run(tmp_path, "def preprocess(i, r): r.invalid('element 3 is not a date')")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("raise KeyError('nope')", "preprocess raised KeyError: 'nope'"),
        ("return 7", "preprocess returned int, expected a dict"),
        ("return {1: i['x']}", "preprocess returned dict, expected a dict of name to array"),
        ("raise ValueError('x' * 5000)", "preprocess raised ValueError"),
        ("raise SystemExit(3)", "preprocess raised SystemExit: 3"),
        ("next(iter(()))", "preprocess raised StopIteration"),
    ],
)
def test_anything_else_is_internal(tmp_path: Path, body: str, complaint: str) -> None:
    with pytest.raises(InternalError, match=complaint) as caught:
        run(tmp_path, f"def preprocess(i, r): {body}")
    assert len(caught.value.message.encode()) <= 1024


def test_parameters_cannot_be_changed_by_a_hook(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="TypeError"):
        run(tmp_path, "def preprocess(i, r): r.parameters['a'] = 2")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("raise RuntimeError('at import')", RuntimeError),
        ("def setup(b): raise OSError('in setup')", OSError),
        ("def broken(:", SyntaxError),
        ("preprocess = 3", TypeError),
    ],
)
def test_a_module_that_cannot_load_leaves_nothing_behind(
    tmp_path: Path, source: str, error: type[Exception]
) -> None:
    before = set(sys.modules)
    with pytest.raises(error):
        load_hooks(bundle(tmp_path, source))
    assert not {name for name in set(sys.modules) - before if name.startswith("reactant_bundle_")}


def test_two_loads_share_nothing_and_no_bytecode_is_written(tmp_path: Path) -> None:
    first = load_hooks(bundle(tmp_path, "def preprocess(i, r): return {'v': 1}"))
    second = load_hooks(bundle(tmp_path, "def preprocess(i, r): return {'v': 2}"))
    assert first is not None
    assert second is not None
    assert first.run("preprocess", X, REQUEST) == {"v": 1}
    assert second.run("preprocess", X, REQUEST) == {"v": 2}
    assert not (tmp_path / "__pycache__").exists()
    names = {first.module_name, second.module_name}
    assert len(names) == 2
    assert names <= set(sys.modules)
    first.close()
    second.close()
    assert not names & set(sys.modules)


def test_classes_of_the_module_can_be_found_by_name(tmp_path: Path) -> None:
    source = """
import dataclasses, pickle

@dataclasses.dataclass
class Box:
    v: int

def preprocess(i, r):
    return {"v": pickle.loads(pickle.dumps(Box(5))).v}
"""
    assert run(tmp_path, source) == {"v": 5}
