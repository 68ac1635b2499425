"""Bundles written from JAX functions: read back as declared, run, and equal to the function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from reactant_core.bundle.repository import ProgramKey, read_bundle, scan_repository
from reactant_core.bundle.signature import check_signature
from reactant_export import TensorDecl, export_jax, verify_bundle
from reactant_programs.artifact import read_artifact
from reactant_programs.compile import compile_artifact

Arrays = dict[str, jax.Array]
Array = np.ndarray[Any, Any]


def run(path: Path, *inputs: Array, batch: int | None = None, variant: int | None = None) -> list[Array]:
    bundle = read_bundle(path)
    key = ProgramKey(batch, variant)
    artifact = read_artifact(bundle.programs[key])
    assert check_signature(bundle, key, artifact.signature) == []
    weights = bundle.weights.arrays() if bundle.weights is not None else []
    program = compile_artifact(artifact, jax.devices("cpu")[0])
    return [np.asarray(output) for output in program(*inputs, *weights)]


def dense(inputs: Arrays, weights: Arrays) -> Arrays:
    x = inputs["x"].reshape(inputs["x"].shape[0], -1)
    return {"y": x @ weights["kernel"] + weights["bias"]}


def dense_weights(dtype: Any = np.float32) -> dict[str, Array]:
    random = np.random.default_rng(1)
    return {
        "kernel": random.standard_normal((12, 5)).astype(dtype),
        "bias": random.standard_normal(5).astype(dtype),
    }


@pytest.mark.slow
def test_batched(tmp_path: Path) -> None:
    path = export_jax(
        dense,
        dense_weights(),
        [TensorDecl("x", "f32", "nhw", {"h": 3, "w": 4})],
        [TensorDecl("y", "f32", "nk", {"k": 5})],
        batch_sizes=[4, 1],
        path=tmp_path / "dense",
    )

    bundle = read_bundle(path)
    assert bundle.name == "dense"
    assert bundle.manifest.compiled_batch_sizes == (1, 4)
    assert bundle.manifest.batched
    assert sorted(file.name for file in bundle.path.iterdir()) == [
        "manifest.yaml",
        "model.b1.mlir",
        "model.b4.mlir",
        "weights.safetensors",
    ]
    assert bundle.weights is not None
    assert bundle.weights.argument_order == ("kernel", "bias")
    x = np.random.default_rng(2).standard_normal((4, 3, 4)).astype(np.float32)
    weights = dense_weights()
    expected = x.reshape(4, 12) @ weights["kernel"] + weights["bias"]
    np.testing.assert_allclose(run(path, x, batch=4)[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run(path, x[:1], batch=1)[0], expected[:1], rtol=1e-5, atol=1e-5)


def test_the_manifest_reads_as_a_person_would_write_it(tmp_path: Path) -> None:
    path = export_jax(
        dense,
        dense_weights(),
        [TensorDecl("x", "f32", "nhw", {"h": 3, "w": 4})],
        [TensorDecl("y", "f32", "nk", {"k": 5})],
        batch_sizes=[1],
        path=tmp_path / "dense",
        idempotent=True,
        provenance={"trained_on": "noise", "scores": {"accuracy": 0.5}},
        verify=False,
    )

    lines = (path / "manifest.yaml").read_text().splitlines()
    assert lines[:6] == [
        "format_version: '3'",
        "executable_inputs:",
        "  - {name: x, dtype: f32, shape: nhw, dims: {h: 3, w: 4}}",
        "executable_outputs:",
        "  - {name: y, dtype: f32, shape: nk, dims: {k: 5}}",
        "batching: {compiled_batch_sizes: [1]}",
    ]
    manifest = read_bundle(path).manifest
    assert manifest.idempotent is True
    assert manifest.provenance["trained_on"] == "noise"
    assert manifest.provenance["matmul_precision"] == "highest"
    assert manifest.provenance["platforms"] == ("cpu", "cuda")


@pytest.mark.slow
def test_unbatched_with_several_inputs_and_outputs(tmp_path: Path) -> None:
    def fn(inputs: Arrays, weights: Arrays) -> Arrays:
        return {"difference": inputs["a"] - inputs["b"], "sum": inputs["a"] + inputs["b"] + weights["c"]}

    tensor: Callable[[str], TensorDecl] = lambda name: TensorDecl(name, "f32", "ij", {"i": 2, "j": 3})  # noqa: E731
    path = export_jax(
        fn,
        {"c": np.array([[1.0]], np.float32)},
        [tensor("a"), tensor("b")],
        [tensor("sum"), tensor("difference")],
        batch_sizes=None,
        path=tmp_path / "add sub",
    )

    a, b = np.full((2, 3), 5, np.float32), np.full((2, 3), 2, np.float32)
    total, difference = run(path, a, b)
    assert total.tolist() == [[8.0] * 3] * 2
    assert difference.tolist() == [[3.0] * 3] * 2
    assert not read_bundle(path).manifest.batched


def test_a_batch_axis_that_is_not_first(tmp_path: Path) -> None:
    path = export_jax(
        lambda inputs, weights: {"y": jnp.cumsum(inputs["x"], axis=0)},
        {},
        [TensorDecl("x", "f32", "tb", {"t": 3})],
        [TensorDecl("y", "f32", "tb", {"t": 3})],
        batch_sizes=[2],
        path=tmp_path / "scan",
    )

    (spec,) = read_bundle(path).manifest.executable_inputs
    assert (spec.batch_axis, spec.dims) == (1, (3, -1))
    assert run(path, np.ones((3, 2), np.float32), batch=2)[0].tolist() == [[1, 1], [2, 2], [3, 3]]
    assert not (path / "weights.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "values"),
    [
        ("bool", np.array([[True], [False]])),
        ("u8", np.array([[0], [255]], np.uint8)),
        ("i8", np.array([[-128], [127]], np.int8)),
        ("i64", np.array([[2**53 + 1], [-(2**62)]], np.int64)),
        ("u64", np.array([[2**64 - 1], [0]], np.uint64)),
        ("f16", np.array([[0.5], [-2]], np.float16)),
        ("bf16", np.array([[0.5], [-2]], ml_dtypes.bfloat16)),
        ("f64", np.array([[1 + 2**-40], [1]], np.float64)),
    ],
)
def test_every_kind_of_dtype(tmp_path: Path, token: str, values: Array) -> None:
    path = export_jax(
        lambda inputs, weights: {"y": jnp.concatenate([inputs["x"], weights["w"]], axis=1)},
        {"w": values[::-1]},
        [TensorDecl("x", token, "nk", {"k": 1})],
        [TensorDecl("y", token, "nk", {"k": 2})],
        batch_sizes=[2],
        path=tmp_path / "both",
    )

    (result,) = run(path, values, batch=2)
    assert result.dtype == values.dtype
    np.testing.assert_array_equal(result, np.concatenate([values, values[::-1]], axis=1))


@pytest.mark.slow
def test_bfloat16_arithmetic(tmp_path: Path) -> None:
    path = export_jax(
        dense,
        dense_weights(ml_dtypes.bfloat16),
        [TensorDecl("x", "bf16", "nhw", {"h": 3, "w": 4})],
        [TensorDecl("y", "bf16", "nk", {"k": 5})],
        batch_sizes=[8],
        path=tmp_path / "half",
    )

    assert verify_bundle(path).ok


@pytest.mark.slow
def test_input_shape_variants(tmp_path: Path) -> None:
    path = export_jax(
        lambda inputs, weights: {
            "mean": inputs["x"].mean(axis=(1, 2)) * weights["scale"],
            "rows": inputs["x"].sum(axis=2),
        },
        {"scale": np.array(2.0, np.float32)},
        [TensorDecl("x", "f32", "nhw", {"h": -1, "w": -1})],
        [TensorDecl("mean", "f32", "n"), TensorDecl("rows", "f32", "nh", {"h": -1})],
        batch_sizes=[1, 2],
        input_shapes=[{"h": 2, "w": 3}, {"h": 4, "w": 4}],
        path=tmp_path / "mean",
    )

    assert sorted(file.name for file in path.glob("*.mlir")) == [
        "model.b1.s0.mlir",
        "model.b1.s1.mlir",
        "model.b2.s0.mlir",
        "model.b2.s1.mlir",
    ]
    mean, rows = run(path, np.ones((2, 4, 4), np.float32), batch=2, variant=1)
    assert mean.tolist() == [2.0, 2.0]
    assert rows.tolist() == [[4.0] * 4] * 2


@pytest.mark.slow
def test_hooks_and_assets_are_staged_in(tmp_path: Path) -> None:
    hooks = tmp_path / "my_hooks.py"
    hooks.write_text("def preprocess(inputs, request):\n    return inputs\n")
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("a\nb\n")
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "one.csv").write_text("1")

    path = export_jax(
        lambda inputs, weights: {"y": inputs["x"] + 1},
        {},
        [TensorDecl("x", "f32", "n")],
        [TensorDecl("y", "f32", "n")],
        batch_sizes=[1],
        path=str(tmp_path / "models" / "hooked"),
        client_inputs=[TensorDecl("text", "bytes", "n")],
        hooks=str(hooks),
        assets=[str(vocabulary), folder],
        internal=True,
    )

    assert (path / "model.py").read_bytes() == hooks.read_bytes()
    assert (path / "words.txt").read_text() == "a\nb\n"
    assert (path / "tables" / "one.csv").read_text() == "1"
    manifest = read_bundle(path).manifest
    assert manifest.internal
    assert manifest.client_inputs is not None
    assert manifest.client_inputs[0].dtype.kserve == "BYTES"
    report = verify_bundle(path)
    assert report.ok
    assert report.hooks == ("preprocess",)
    assert report.assets == ("tables", "words.txt")


@pytest.mark.slow
def test_a_program_that_differs_by_platform_chooses_its_own(tmp_path: Path) -> None:
    def fn(inputs: Arrays, weights: Arrays) -> Mapping[str, jax.Array]:
        x = inputs["x"]
        return {"y": jnp.linalg.cholesky(x @ x.T + jnp.eye(3, dtype=x.dtype))}

    declared = [TensorDecl("x", "f32", "ij", {"i": 3, "j": 3})]
    result = [TensorDecl("y", "f32", "ij", {"i": 3, "j": 3})]
    both = export_jax(fn, {}, declared, result, batch_sizes=None, path=tmp_path / "both")
    one = export_jax(fn, {}, declared, result, batch_sizes=None, path=tmp_path / "one", platforms=["cpu"])

    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(run(both, x)[0], run(one, x)[0])
    (of_both,), (of_one,) = verify_bundle(both).programs, verify_bundle(one).programs
    assert of_both.platforms == ("cpu", "cuda")
    assert of_both.custom_calls == ("cusolver_potrf_ffi", "lapack_spotrf_ffi")
    assert of_one.platforms == ()
    assert of_one.custom_calls == ("lapack_spotrf_ffi",)


@pytest.mark.parametrize(("precision", "marks"), [("highest", 2), ("default", 0)])
def test_matmul_precision_is_pinned(tmp_path: Path, precision: str, marks: int) -> None:
    path = export_jax(
        dense,
        dense_weights(),
        [TensorDecl("x", "f32", "nhw", {"h": 3, "w": 4})],
        [TensorDecl("y", "f32", "nk", {"k": 5})],
        batch_sizes=[1],
        path=tmp_path / "dense",
        matmul_precision=precision,
        verify=False,
    )

    from jaxlib.mlir.dialects import stablehlo

    from reactant_programs.inspection import make_context

    context = make_context([])
    text = str(stablehlo.deserialize_portable_artifact(context, (path / "model.b1.mlir").read_bytes()))
    (dot,) = (line for line in text.splitlines() if "dot_general" in line)
    assert dot.count("HIGHEST") == marks


def test_the_same_export_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        export_jax(
            dense,
            dense_weights(),
            [TensorDecl("x", "f32", "nhw", {"h": 3, "w": 4})],
            [TensorDecl("y", "f32", "nk", {"k": 5})],
            batch_sizes=[1],
            path=tmp_path / name,
            verify=False,
        )

    files = {file.name for file in (tmp_path / "one").iterdir()}
    assert len(files) == 3
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert str(tmp_path).encode() not in (tmp_path / "one" / "model.b1.mlir").read_bytes()
    assert b"test_round_trip" not in (tmp_path / "one" / "model.b1.mlir").read_bytes()


@pytest.mark.slow
def test_a_bundle_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    def export(factor: float) -> Path:
        return export_jax(
            lambda inputs, weights: {"y": inputs["x"] * weights["factor"]},
            {"factor": np.array(factor, np.float32)},
            [TensorDecl("x", "f32", "n")],
            [TensorDecl("y", "f32", "n")],
            batch_sizes=[1],
            path=tmp_path / "scale",
            verify=False,
        )

    export(2.0)
    path = export(3.0)

    assert run(path, np.ones(1, np.float32), batch=1)[0].tolist() == [3.0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["scale"]
    assert list(scan_repository([tmp_path]).bundles) == ["scale"]
