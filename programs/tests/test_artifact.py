"""What `read_artifact` finds in good files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from reactant_core.bundle.signature import Signature, TensorType
from reactant_programs.artifact import read_artifact

PathMaker = Callable[..., Path]


@pytest.mark.slow
def test_signature_has_inputs_then_weights_and_every_result(export_program: PathMaker) -> None:
    def fn(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(x @ w).astype(jnp.bfloat16), x.sum(axis=0)

    artifact = read_artifact(export_program(fn, ((4, 8), np.float32), ((8, 3), np.float32)))

    assert artifact.signature == Signature(
        arguments=(TensorType("f32", (4, 8)), TensorType("f32", (8, 3))),
        results=(TensorType("bf16", (4, 3)), TensorType("f32", (8,))),
    )
    assert artifact.custom_calls == ()
    assert artifact.platforms == ()
    assert artifact.digest == hashlib.sha256(artifact.portable).hexdigest()
    major, minor, patch = artifact.stablehlo_version.split(".")
    assert (major, minor.isdigit(), patch.isdigit()) == ("1", True, True)


@pytest.mark.parametrize(
    ("dtype", "mlir"),
    [
        (np.bool_, "i1"),
        (np.int8, "i8"),
        (np.int16, "i16"),
        (np.int32, "i32"),
        (np.int64, "i64"),
        (np.uint8, "ui8"),
        (np.uint16, "ui16"),
        (np.uint32, "ui32"),
        (np.uint64, "ui64"),
        (np.float16, "f16"),
        (ml_dtypes.bfloat16, "bf16"),
        (np.float32, "f32"),
        (np.float64, "f64"),
        (ml_dtypes.float8_e4m3fn, "f8E4M3FN"),
        (ml_dtypes.float8_e5m2, "f8E5M2"),
    ],
)
def test_every_dtype_keeps_its_own_element_type(export_program: PathMaker, dtype: Any, mlir: str) -> None:
    artifact = read_artifact(export_program(lambda x: x.reshape(3, 2), ((2, 3), dtype)))

    assert artifact.signature.arguments == (TensorType(mlir, (2, 3)),)
    assert artifact.signature.results == (TensorType(mlir, (3, 2)),)


def test_an_unused_weight_stays_an_argument(export_program: PathMaker) -> None:
    path = export_program(lambda x, unused: x + 1, ((2,), np.float32), ((5,), np.float32), keep_unused=True)

    assert read_artifact(path).signature.arguments == (TensorType("f32", (2,)), TensorType("f32", (5,)))


def test_text_is_read_like_bytecode(write_text: PathMaker) -> None:
    path = write_text("(%x: tensor<2xui8>) -> tensor<2xui8>", "return %x : tensor<2xui8>")

    artifact = read_artifact(path)

    assert artifact.signature == Signature((TensorType("ui8", (2,)),), (TensorType("ui8", (2,)),))
    assert artifact.stablehlo_version == ""
    assert artifact.portable.startswith(b"ML\xefRStableHLO_v".replace(b"R", b"R\r"))


def test_digest_depends_on_the_computation_alone(export_program: PathMaker) -> None:
    def one(x: jax.Array) -> jax.Array:
        return jnp.sin(x) * 2

    def another_name(argument: jax.Array) -> jax.Array:
        return jnp.sin(argument) * 2

    first, same, other = (
        read_artifact(export_program(fn, ((3,), np.float32), name=f"{index}.mlir"))
        for index, fn in enumerate((one, another_name, lambda x: jnp.sin(x) * 3))
    )

    assert first.path.read_bytes() != same.path.read_bytes()
    assert first.digest == same.digest
    assert first.digest != other.digest


def test_donation_marks_do_not_survive(write_text: PathMaker) -> None:
    plain = write_text("(%x: tensor<2xf32>) -> tensor<2xf32>", "return %x : tensor<2xf32>", name="plain.mlir")
    marked = write_text(
        "(%x: tensor<2xf32> {tf.aliasing_output = 0 : i32, jax.buffer_donor = true}) -> tensor<2xf32>",
        "return %x : tensor<2xf32>",
        name="marked.mlir",
    )

    assert read_artifact(marked).portable == read_artifact(plain).portable


def test_an_unused_platform_index_is_stripped(write_text: PathMaker) -> None:
    path = write_text(
        '(%p: tensor<i32> {jax.global_constant = "_platform_index"}, %x: tensor<2xf32>) -> tensor<2xf32>',
        "return %x : tensor<2xf32>",
    )

    artifact = read_artifact(path)

    assert artifact.signature.arguments == (TensorType("f32", (2,)),)
    assert artifact.platforms == ()


def test_a_used_platform_index_needs_the_platforms_names(write_text: PathMaker) -> None:
    signature = '(%p: tensor<i32> {jax.global_constant = "_platform_index"}, %x: tensor<i32>) -> tensor<i32>'
    body = "%0 = stablehlo.add %p, %x : tensor<i32>\nreturn %0 : tensor<i32>"
    named = write_text(signature, body, attributes='reactant.platforms = ["cpu", "cuda"]')

    artifact = read_artifact(named)

    assert artifact.platforms == ("cpu", "cuda")
    assert artifact.signature.arguments == (TensorType("i32", ()),)


@pytest.mark.slow
def test_custom_calls_on_the_list_are_named(export_program: PathMaker) -> None:
    path = export_program(jnp.linalg.cholesky, ((3, 3), np.float32))

    assert read_artifact(path).custom_calls == ("lapack_spotrf_ffi",)


def test_importing_the_package_keeps_64_bits() -> None:
    assert jnp.asarray(np.int64(2**40)).dtype == np.int64


def test_reading_is_quiet(write_text: PathMaker, capfd: pytest.CaptureFixture[str]) -> None:
    path: Path = write_text("(%x: tensor<f32>) -> tensor<f32>", "return %x : tensor<f32>")

    read_artifact(path)

    assert capfd.readouterr() == ("", "")
