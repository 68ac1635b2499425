"""`verify_bundle` on damaged bundles, and the command around it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reactant_export import TensorDecl, export_jax, verify_bundle
from reactant_export.main import main

Bundle = Callable[[], Path]

SPEC = """
import dataclasses
import numpy as np
from reactant_export import ExportSpec, TensorDecl

def scale():
    return ExportSpec(
        fn=lambda inputs, weights: {"y": inputs["x"] * weights["factor"]},
        weights={"factor": np.array(2.0, np.float32)},
        inputs=[TensorDecl("x", "f32", "nk", {"k": 3})],
        outputs=[TensorDecl("y", "f32", "nk", {"k": 3})],
        batch_sizes=[1],
    )

def of_a_list():
    return dataclasses.replace(scale(), weights=[1.0])

def fn(inputs, weights):
    return inputs

wrong = {"not": "a spec"}
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return export_jax(
        lambda inputs, weights: {"y": inputs["x"] * weights["factor"]},
        {"factor": np.array(2.0, np.float32)},
        [TensorDecl("x", "f32", "nk", {"k": 3})],
        [TensorDecl("y", "f32", "nk", {"k": 3})],
        batch_sizes=[1, 4],
        path=tmp_path / "scale",
        verify=False,
    )


@pytest.mark.slow
def test_a_sound_bundle(bundle: Path) -> None:
    report = verify_bundle(bundle)

    assert report.ok
    assert report.name == "scale"
    assert (report.weights, report.weight_bytes) == (1, 4)
    assert [program.file for program in report.programs] == ["model.b1.mlir", "model.b4.mlir"]
    assert all(program.memory is not None for program in report.programs)
    assert all(program.memory is None for program in verify_bundle(bundle, execute=False).programs)


def test_faults_of_all_files_at_once(bundle: Path) -> None:
    (bundle / "model.b1.mlir").write_bytes(b"junk")
    (bundle / "model.b4.mlir").write_bytes((bundle / "model.b4.mlir").read_bytes()[:-20])
    (bundle / "model.py").write_text("def preprocess(:\n")

    faults = verify_bundle(bundle).faults

    assert [fault.split(":")[0] for fault in faults] == ["model.py", "model.b1.mlir", "model.b4.mlir"]


def test_programs_that_are_not_what_the_manifest_says(bundle: Path) -> None:
    (bundle / "model.b4.mlir").write_bytes((bundle / "model.b1.mlir").read_bytes())

    report = verify_bundle(bundle)

    assert report.faults == (
        "model.b4.mlir: argument 0 (input 'x') is f32[1,3], the bundle says f32[4,3]",
        "model.b4.mlir: result 0 (output 'y') is f32[1,3], the bundle says f32[4,3]",
    )


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    for name in ("empty", "nowhere"):
        report = verify_bundle(tmp_path / name)
        assert not report.ok
        assert report.manifest is None


def test_hooks_that_do_not_bridge_to_the_program(bundle: Path) -> None:
    with (bundle / "manifest.yaml").open("a") as file:
        file.write("client_inputs: [{name: text, dtype: bytes, shape: n}]\n")
    differ = "client_inputs differ from executable_inputs and "

    # Were it run, it would fail.
    (bundle / "model.py").write_text("def pre_process(inputs, request): ...\nraise SystemExit\n")
    faults = verify_bundle(str(bundle), execute=False).faults
    assert faults == (f"{differ}model.py has no preprocess; is pre_process meant to be it?",)

    (bundle / "model.py").write_text("from elsewhere import preprocess\nraise SystemExit\n")
    report = verify_bundle(bundle, execute=False)
    assert report.ok
    assert report.hooks == ("preprocess",)


def test_metas_need_run(tmp_path: Path) -> None:
    meta = tmp_path / "meta"
    meta.mkdir()
    tensor = "[{name: x, dtype: f32, shape: k, dims: {k: 2}}]"
    (meta / "manifest.yaml").write_text(
        f"format_version: '3'\nkind: meta\nmeta: {{calls: []}}\n"
        f"client_inputs: {tensor}\nclient_outputs: {tensor}\n"
    )
    (meta / "model.py").write_text("def runs(inputs, call, request): ...\n")
    assert verify_bundle(meta).faults == ("model.py: a meta needs a function run(inputs, call, request)",)

    (meta / "model.py").write_text("def run(inputs, call, request): ...\n")
    assert verify_bundle(meta).ok


def test_command_verify(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(bundle)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("scale: model, format 3\n")
    assert "  input        x FP32 [batch, 3]\n" in text
    assert "  batch sizes  1, 4\n" in text
    assert "  weights      1 tensors, 4 B\n" in text
    assert "model.b4.mlir: StableHLO 1." in text
    assert text.endswith("ok\n")

    (bundle / "model.b1.mlir").write_bytes(b"junk")
    assert main(["verify", "--no-execute", str(bundle)]) == 1
    text = capsys.readouterr().out
    assert "  FAULT        model.b1.mlir: it does not parse" in text
    assert text.endswith("1 fault\n")


@pytest.mark.slow
def test_command_jax(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_spec_of_ours.py").write_text(SPEC)

    assert main(["jax", "a_spec_of_ours.py:scale", "out/by-file"]) == 0
    assert main(["jax", "a_spec_of_ours:scale", "out/by-module", "--batch-sizes", "2,8", "--no-verify"]) == 0
    capsys.readouterr()
    assert verify_bundle(tmp_path / "out" / "by-file").ok
    by_module = verify_bundle(tmp_path / "out" / "by-module").manifest
    assert by_module is not None
    assert by_module.compiled_batch_sizes == (2, 8)

    for source, part in (
        ("a_spec_of_ours.py", "is not of the form MODULE:FUNCTION"),
        ("a_spec_of_ours.py:nothing", "a_spec_of_ours.py has no nothing"),
        ("a_spec_of_ours.py:wrong", "must give a reactant_export.ExportSpec, not dict"),
        ("a_spec_of_ours.py:fn", "a_spec_of_ours.py:fn takes arguments, (inputs, weights): name a function"),
        ("a_spec_of_ours.py:of_a_list", "weights: must be a dict of name to array, not list"),
        ("no_such_module:scale", "there is no module no_such_module"),
        ("no_such_file.py:scale", "there is no file no_such_file.py"),
    ):
        assert main(["jax", source, "out/x"]) == 1
        told = capsys.readouterr().err
        assert part in told
        assert told.count("\n") == 1
    assert not (tmp_path / "out" / "x").exists()
    assert main(["jax", "a_spec_of_ours.py:scale", "a_spec_of_ours.py/x"]) == 1
    told = capsys.readouterr().err
    assert told == (
        "reactant-export: a_spec_of_ours.py/x: cannot be written: a_spec_of_ours.py: is no directory\n"
    )


def test_an_interrupted_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "interrupted_spec.py").write_text("def f():\n    raise KeyboardInterrupt\n")

    assert main(["jax", f"{tmp_path}/interrupted_spec.py:f", str(tmp_path / "x")]) == 130
    assert capsys.readouterr().err == "reactant-export: interrupted\n"


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--batch-sizes", "1,x", "'1,x': accepted are numbers from 1, with commas, such as 1,8,32"),
        ("--batch-sizes", "0", "'0': accepted are numbers from 1"),
        ("--batch-sizes", "", "'': accepted are numbers from 1"),
        ("--platforms", "cpu,tpu", "'cpu,tpu': accepted are cpu, cuda"),
        ("--platforms", "", "'': accepted are cpu, cuda"),
    ],
)
def test_wrong_options_say_what_is_accepted(
    option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["jax", "a:b", "out", option, value])

    assert exit_.value.code == 2
    assert told in capsys.readouterr().err
