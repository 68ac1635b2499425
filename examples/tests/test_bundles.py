"""The bundles as written: what clients are promised, and programs that fit it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest

from reactant_core.bundle.manifest import TensorSpec
from reactant_core.bundle.repository import Bundle, ProgramKey, read_bundle, scan_repository
from reactant_core.bundle.signature import check_signature
from reactant_examples.build import main
from reactant_examples.digits.data import split_digits
from reactant_programs.artifact import read_artifact
from reactant_programs.compile import compile_artifact

pytestmark = pytest.mark.slow


def promised(tensors: tuple[TensorSpec, ...]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(tensor.name, tensor.dtype.kserve, tensor.dims) for tensor in tensors]


def program_faults(bundle: Bundle) -> list[str]:
    return [
        fault
        for key, file in bundle.programs.items()
        for fault in check_signature(bundle, key, read_artifact(file).signature)
    ]


def test_the_model_directory_holds_the_models(bundles: Path) -> None:
    found = list(scan_repository([bundles]).bundles)
    assert found == ["digit_finder", "digits", "minilm", "page_reader", "search"]


def test_search_takes_a_query_and_passages_and_gives_their_order(bundles: Path) -> None:
    bundle = read_bundle(bundles / "search")
    assert promised(bundle.manifest.inputs) == [("query", "BYTES", (1,)), ("passages", "BYTES", (-1,))]
    assert promised(bundle.manifest.outputs) == [("order", "INT32", (-1,)), ("scores", "FP32", (-1,))]
    assert bundle.manifest.meta_calls == ("minilm",)
    assert bundle.idempotent


def test_page_reader_takes_a_page_and_gives_the_digits_on_it(bundles: Path) -> None:
    bundle = read_bundle(bundles / "page_reader")
    assert promised(bundle.manifest.inputs) == [("page", "FP32", (64, 64))]
    assert promised(bundle.manifest.outputs) == [
        ("digit", "INT32", (-1,)),
        ("probability", "FP32", (-1,)),
        ("corner", "INT32", (-1, 2)),
    ]
    assert bundle.manifest.meta_calls == ("digit_finder", "digits")
    assert read_bundle(bundles / "digit_finder").manifest.internal


def test_metas_know_the_largest_batches_of_their_models(
    bundles: Path, meta_of: Callable[[Bundle], ModuleType]
) -> None:
    for meta, model in (("search", "minilm"), ("page_reader", "digits")):
        code = meta_of(read_bundle(bundles / meta))
        assert read_bundle(bundles / model).manifest.compiled_batch_sizes[-1] == code.LARGEST_BATCH


def test_minilm_takes_text_and_gives_vectors(bundles: Path) -> None:
    bundle = read_bundle(bundles / "minilm")
    assert promised(bundle.manifest.inputs) == [("text", "BYTES", (-1,))]
    assert promised(bundle.manifest.outputs) == [("embedding", "FP32", (-1, 384))]
    assert bundle.manifest.compiled_batch_sizes == (1, 8, 32)
    assert [dict(shape) for shape in bundle.manifest.input_shapes] == [{"s": 32}, {"s": 128}, {"s": 256}]
    assert bundle.manifest.batched
    assert bundle.idempotent
    assert program_faults(bundle) == []


def test_digits_takes_pictures_and_gives_probabilities(bundles: Path) -> None:
    bundle = read_bundle(bundles / "digits")
    assert promised(bundle.manifest.inputs) == [("image", "FP32", (-1, 8, 8))]
    assert promised(bundle.manifest.outputs) == [("probabilities", "FP32", (-1, 10))]
    assert bundle.manifest.compiled_batch_sizes == (1, 8, 32, 128)
    assert bundle.manifest.batched
    assert bundle.idempotent
    assert bundle.hooks is None
    assert program_faults(bundle) == []


def test_the_digits_program_reads_held_out_digits(bundles: Path) -> None:
    bundle = read_bundle(bundles / "digits")
    assert bundle.weights is not None
    _, held_out = split_digits()
    program = compile_artifact(read_artifact(bundle.programs[ProgramKey(128, None)]), jax.devices("cpu")[0])
    (probabilities,) = (np.asarray(a) for a in program(held_out.images[:128], *bundle.weights.arrays()))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert (probabilities.argmax(axis=1) == held_out.labels[:128]).mean() >= 0.96


def test_a_second_build_finds_nothing_to_do(bundles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = {file: file.stat().st_mtime_ns for file in bundles.rglob("*.mlir")}
    assert main(["--out", str(bundles)]) == 0
    assert capsys.readouterr().err == ""
    assert {file: file.stat().st_mtime_ns for file in bundles.rglob("*.mlir")} == written
