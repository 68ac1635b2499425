"""Compiled programs: right answers of the right type, weights left alone, clear refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from reactant_core.bundle.errors import BundleError
from reactant_programs.artifact import Artifact, read_artifact
from reactant_programs.compile import compile_artifact

PathMaker = Callable[..., Path]


def test_outputs_come_in_order(export_program: PathMaker, device: jax.Device) -> None:
    artifact = read_artifact(
        export_program(lambda x, w: (x @ w, x.sum()), ((2, 3), np.float32), ((3, 2), np.float32))
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    w = np.ones((3, 2), np.float32)

    product, total = compile_artifact(artifact, device)(x, jax.device_put(w, device))

    np.testing.assert_allclose(product, x @ w)
    assert total == 15.0
    assert product.devices() == {device}


@pytest.mark.parametrize(
    "array",
    [
        np.array([2**53 + 1, -(2**62)], np.int64),
        np.array([2**63 + 5], np.uint64),
        np.array([1.0 + 2**-40], np.float64),
        np.array([1.5, -2.0], ml_dtypes.bfloat16),
        np.array([1.5, -2.0], np.float16),
        np.array([True, False]),
        np.array([0, 255], np.uint8),
        np.array([-128, 127], np.int8),
    ],
    ids=lambda array: str(array.dtype),
)
def test_values_pass_unchanged_in_every_width(
    export_program: PathMaker, device: jax.Device, array: np.ndarray[Any, Any]
) -> None:
    program = compile_artifact(
        read_artifact(export_program(lambda x: jnp.stack([x, x]), (array.shape, array.dtype))), device
    )

    (result,) = program(array)

    assert result.dtype == array.dtype
    np.testing.assert_array_equal(np.asarray(result), np.stack([array, array]))


def test_l10_an_aliased_weight_gives_three_equal_answers(write_text: PathMaker, device: jax.Device) -> None:
    body = "%0 = stablehlo.add %w, %x : tensor<4xf32>\nreturn %0 : tensor<4xf32>"
    path = write_text(
        "(%x: tensor<4xf32>, %w: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32>", body
    )
    program = compile_artifact(read_artifact(path), device)
    x, weight = np.ones(4, np.float32), jax.device_put(np.arange(4, dtype=np.float32), device)

    answers = [np.asarray(program(x, weight)[0]).tolist() for _ in range(3)]

    assert answers == [[1.0, 2.0, 3.0, 4.0]] * 3
    assert not weight.is_deleted()
    assert np.asarray(weight).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_l10_a_donating_jax_function_gives_three_equal_answers(
    export_program: PathMaker, device: jax.Device
) -> None:
    # Lowered for CUDA, where JAX marks donated arguments in the module; the module itself runs anywhere.
    path = export_program(
        lambda x, w: w + x, ((4,), np.float32), ((4,), np.float32), donate_argnums=1, platforms=["cuda"]
    )
    assert b"tf.aliasing_output" in path.read_bytes()
    program = compile_artifact(read_artifact(path), device)
    x = jax.device_put(np.ones(4, np.float32), device)
    weight = jax.device_put(np.arange(4, dtype=np.float32), device)

    answers = [np.asarray(program(x, weight)[0]).tolist() for _ in range(3)]

    assert answers == [[1.0, 2.0, 3.0, 4.0]] * 3
    assert not x.is_deleted()
    assert not weight.is_deleted()


def test_wrong_arrays_are_refused(export_program: PathMaker, device: jax.Device) -> None:
    program = compile_artifact(read_artifact(export_program(jnp.sin, ((2,), np.float32))), device)
    program(np.zeros(2, np.float32))

    for wrong in (np.zeros(3, np.float32), np.zeros(2, np.float64), np.zeros((1, 2), np.float32)):
        with pytest.raises(TypeError, match="called with"):
            program(wrong)
    with pytest.raises(TypeError):
        program()
    with pytest.raises(TypeError):
        program(np.zeros(2, np.float32), np.zeros(2, np.float32))


def test_memory_use_is_in_bytes(export_program: PathMaker, device: jax.Device) -> None:
    program = compile_artifact(
        read_artifact(
            export_program(
                lambda x, w: jnp.tanh(x @ w) @ w.T, ((64, 32), np.float32), ((32, 128), np.float32)
            )
        ),
        device,
    )

    assert program.memory.argument_bytes == (64 * 32 + 32 * 128) * 4
    assert program.memory.output_bytes == 64 * 32 * 4
    assert program.memory.temp_bytes >= 64 * 128 * 4
    assert program.memory.code_bytes >= 0
    assert program.build_seconds > 0


@pytest.mark.slow
def test_linear_algebra_through_lapack(export_program: PathMaker, device: jax.Device) -> None:
    matrix = np.array([[4.0, 2.0], [2.0, 3.0]], np.float32)
    program = compile_artifact(
        read_artifact(export_program(jnp.linalg.cholesky, ((2, 2), np.float32))), device
    )

    (factor,) = program(matrix)

    np.testing.assert_allclose(factor @ factor.T, matrix, rtol=1e-6)


SCALE_BY_PLATFORM = """
%0 = "stablehlo.case"(%p) ({
  %1 = stablehlo.constant dense<SECOND> : tensor<f32>
  stablehlo.return %1 : tensor<f32>
}, {
  %2 = stablehlo.constant dense<3.0> : tensor<f32>
  stablehlo.return %2 : tensor<f32>
}) : (tensor<i32>) -> tensor<f32>
%3 = stablehlo.multiply %0, %x : tensor<f32>
return %3 : tensor<f32>
""".replace("SECOND", "2.0")


@pytest.mark.parametrize(("order", "factor"), [('"cpu", "cuda"', 2.0), ('"cuda", "cpu"', 3.0)])
def test_a_program_of_several_platforms_takes_its_own_branch(
    write_text: PathMaker, device: jax.Device, order: str, factor: float
) -> None:
    path = write_text(
        '(%p: tensor<i32> {jax.global_constant = "_platform_index"}, %x: tensor<f32>) -> tensor<f32>',
        SCALE_BY_PLATFORM,
        attributes=f"reactant.platforms = [{order}]",
    )

    (result,) = compile_artifact(read_artifact(path), device)(np.array(5.0, np.float32))

    assert float(result) == 5.0 * factor


def test_refusals_name_the_file(write_text: PathMaker, device: jax.Device) -> None:
    index = '(%p: tensor<i32> {jax.global_constant = "_platform_index"}, %x: tensor<i32>) -> tensor<i32>'
    add = "%0 = stablehlo.add %p, %x : tensor<i32>\nreturn %0 : tensor<i32>"
    elsewhere = write_text(index, add, attributes='reactant.platforms = ["cuda", "tpu"]', name="a.mlir")
    with pytest.raises(BundleError, match=r"a\.mlir: was exported for cuda, tpu; this device is cpu"):
        compile_artifact(read_artifact(elsewhere), device)

    complex_type = write_text(
        "(%x: tensor<complex<f32>>) -> tensor<complex<f32>>",
        "return %x : tensor<complex<f32>>",
        name="b.mlir",
    )
    with pytest.raises(BundleError, match=r"b\.mlir: argument 0 has element type complex<f32>; accepted"):
        compile_artifact(read_artifact(complex_type), device)

    foreign = write_text(
        "(%x: tensor<2xf32>) -> tensor<2xf32>",
        "%0 = stablehlo.custom_call @cusolver_potrf_ffi(%x) {api_version = 4 : i32}"
        " : (tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32>",
        name="c.mlir",
    )
    with pytest.raises(BundleError, match=r"c\.mlir: does not compile for cpu: .*cusolver_potrf_ffi"):
        compile_artifact(read_artifact(foreign), device)


@pytest.mark.slow
def test_many_threads_compile_and_call_at_once(export_program: PathMaker, device: jax.Device) -> None:
    def scale_by(factor: float) -> Callable[..., Any]:
        return lambda x, w: jnp.tanh(x @ w) * factor

    artifacts = [
        read_artifact(
            export_program(
                scale_by(float(index)), ((4, 8), np.float32), ((8, 8), np.float32), name=f"{index}.mlir"
            )
        )
        for index in range(8)
    ]
    x, w = np.full((4, 8), 0.25, np.float32), np.eye(8, dtype=np.float32)
    together = threading.Barrier(8)

    def build_and_call(artifact: Artifact) -> float:
        together.wait(timeout=30)
        program = compile_artifact(artifact, device)
        answers = {float(np.asarray(program(x, w)[0])[0, 0]) for _ in range(50)}
        assert len(answers) == 1
        return answers.pop()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(build_and_call, artifacts))

    np.testing.assert_allclose(answers, np.tanh(0.25) * np.arange(8), rtol=1e-6)
