from __future__ import annotations

from pathlib import Path

import pytest

from reactant_core.bundle.errors import BundleError
from reactant_core.bundle.repository import read_bundle
from reactant_export import TensorDecl, export_meta, verify_bundle

TEXT = TensorDecl("text", "bytes", "t", {"t": -1})
SCORES = TensorDecl("scores", "f32", "t", {"t": -1})


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "code.py"
    file.write_text("def run(inputs, call, request): return call('embed', inputs)\n")
    return file


def test_a_meta_is_written_as_it_was_declared(tmp_path: Path, code: Path) -> None:
    (tmp_path / "words.txt").write_text("one two")
    path = export_meta(
        code,
        [TEXT],
        [SCORES],
        calls=["embed", "модель"],
        path=tmp_path / "models" / "rank",
        assets=[tmp_path / "words.txt"],
        idempotent=True,
        provenance={"made": "here"},
    )
    bundle = read_bundle(path)
    manifest = bundle.manifest
    assert (manifest.kind, manifest.meta_calls) == ("meta", ("embed", "модель"))
    assert [(t.name, t.dtype.kserve, t.dims) for t in manifest.inputs] == [("text", "BYTES", (-1,))]
    assert [(t.name, t.dtype.kserve, t.dims) for t in manifest.outputs] == [("scores", "FP32", (-1,))]
    assert manifest.provenance == {"exporter": "reactant-export", "made": "here"}
    assert bundle.idempotent
    assert bundle.hooks is not None
    assert bundle.hooks.read_text() == code.read_text()
    assert (path / "words.txt").read_text() == "one two"
    assert verify_bundle(path).ok


def test_a_meta_may_call_nothing(tmp_path: Path, code: Path) -> None:
    bundle = read_bundle(export_meta(code, [TEXT], [TEXT], calls=[], path=tmp_path / "alone"))
    assert bundle.manifest.meta_calls == ()
    assert not bundle.idempotent


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"inputs": [TensorDecl("text", "bytes", "n")]}, "a meta has no batch axis"),
        ({"inputs": []}, "client_inputs"),
        ({"calls": ["a", "a"]}, "'a' is listed twice"),
        ({"calls": ["../a"]}, "cannot be a model's name"),
        ({"calls": ["rank"]}, "a meta cannot call itself"),
        ({"run": "nowhere.py"}, "nowhere.py is no file"),
        ({"assets": ["nothing.txt"]}, "nothing.txt: does not exist"),
        ({"provenance": {"f": print}}, "provenance: may hold"),
    ],
)
def test_what_is_no_meta_is_not_written(
    tmp_path: Path, code: Path, changes: dict[str, object], fault: str
) -> None:
    whole = {"run": code, "inputs": [TEXT], "outputs": [SCORES], "calls": ["embed"], **changes}
    with pytest.raises(BundleError, match=fault):
        export_meta(path=tmp_path / "models" / "rank", **whole)  # type: ignore[arg-type]
    assert not (tmp_path / "models" / "rank").exists()


def test_code_without_run_is_refused(tmp_path: Path, code: Path) -> None:
    code.write_text("def runs(inputs, call, request): ...\n")
    with pytest.raises(BundleError, match=r"a meta needs a function run\(inputs, call, request\)"):
        export_meta(code, [TEXT], [SCORES], calls=[], path=tmp_path / "rank")
