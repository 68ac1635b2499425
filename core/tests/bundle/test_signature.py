from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from reactant_core.bundle.repository import Bundle, ProgramKey, read_bundle
from reactant_core.bundle.signature import (
    Signature,
    TensorType,
    align_weights,
    check_signature,
    expected_signature,
)

MakeBundle = Callable[..., Path]

MANIFEST = """\
format_version: "3"
executable_inputs:
  - {name: image, dtype: u8, shape: nchw, dims: {c: 3, h: -1, w: -1}}
  - {name: flag, dtype: bool, shape: ""}
executable_outputs:
  - {name: boxes, dtype: bf16, shape: mnk, dims: {m: -1, k: 4}}
batching: {compiled_batch_sizes: [1, 8]}
input_shapes: [{h: 2, w: 3}, {h: 5, w: 7}]
"""
WEIGHTS = {
    "w": np.zeros((4, 3), np.float32),
    "q": np.zeros((2,), ml_dtypes.float8_e4m3fn),
    "r": np.zeros((), ml_dtypes.float8_e5m2),
}
KEY = ProgramKey(8, 1)
ARGUMENTS = (
    TensorType("ui8", (8, 3, 5, 7)),
    TensorType("i1", ()),
    TensorType("f32", (4, 3)),
    TensorType("f8E4M3FN", (2,)),
    TensorType("f8E5M2", ()),
)


@pytest.fixture
def bundle(make_bundle: MakeBundle) -> Bundle:
    programs = {f"model.b{b}.s{k}.mlir": "x" for b in (1, 8) for k in (0, 1)}
    surplus = {"model.b1.mlir": None, "model.b8.mlir": None}
    return read_bundle(make_bundle({**programs, **surplus}, manifest=MANIFEST, weights=WEIGHTS))


def _replaced(index: int, changed: TensorType) -> tuple[TensorType, ...]:
    return (*ARGUMENTS[:index], changed, *ARGUMENTS[index + 1 :])


def test_expected_signature(bundle: Bundle) -> None:
    assert expected_signature(bundle, KEY) == Signature(ARGUMENTS, (TensorType("bf16", (-1, 8, 4)),))
    other = expected_signature(bundle, ProgramKey(1, 0))
    assert other.arguments[0].shape == (1, 3, 2, 3)
    assert other.results[0].shape == (-1, 1, 4)


@pytest.mark.parametrize("size", [0, 1, 300])
def test_a_variable_axis_of_an_output_has_any_size(bundle: Bundle, size: int) -> None:
    assert check_signature(bundle, KEY, Signature(ARGUMENTS, (TensorType("bf16", (size, 8, 4)),))) == []


@pytest.mark.parametrize(
    ("arguments", "result", "differences"),
    [
        (
            _replaced(0, TensorType("i8", (8, 3, 5, 7))),
            TensorType("bf16", (9, 8, 4)),
            ["argument 0 (input 'image') is i8[8,3,5,7], the bundle says ui8[8,3,5,7]"],
        ),
        (
            _replaced(0, TensorType("ui8", (8, 3, 7, 5))),
            TensorType("bf16", (9, 8, 4)),
            ["argument 0 (input 'image') is ui8[8,3,7,5], the bundle says ui8[8,3,5,7]"],
        ),
        (
            _replaced(0, TensorType("ui8", (1, 3, 5, 7))),
            TensorType("bf16", (9, 8, 4)),
            ["argument 0 (input 'image') is ui8[1,3,5,7], the bundle says ui8[8,3,5,7]"],
        ),
        (
            _replaced(2, TensorType("f32", (3, 4))),
            TensorType("bf16", (9, 8, 4)),
            ["argument 2 (weight 'w') is f32[3,4], the bundle says f32[4,3]"],
        ),
        (
            _replaced(4, TensorType("f8E4M3FN", (1,))),
            TensorType("f32", (9, 8, 5)),
            [
                "argument 4 (weight 'r') is f8E4M3FN[1], the bundle says f8E5M2[]",
                "result 0 (output 'boxes') is f32[9,8,5], the bundle says bf16[any,8,4]",
            ],
        ),
        (
            ARGUMENTS[:3],
            TensorType("bf16", (9, 8, 4)),
            ["takes 3 arguments, not 5 (inputs: 2, weights: 3)"],
        ),
        (
            (*ARGUMENTS, TensorType("ui64", (2,))),
            TensorType("bf16", (8, 4)),
            [
                "takes 6 arguments, not 5 (inputs: 2, weights: 3)",
                "result 0 (output 'boxes') is bf16[8,4], the bundle says bf16[any,8,4]",
            ],
        ),
        (
            ARGUMENTS,
            None,
            ["gives 0 results, not 1 (executable_outputs)"],
        ),
    ],
)
def test_differences_are_sentences(
    bundle: Bundle, arguments: tuple[TensorType, ...], result: TensorType | None, differences: list[str]
) -> None:
    signature = Signature(arguments, () if result is None else (result,))
    expected = [f"model.b8.s1.mlir: {text}" for text in differences]
    assert check_signature(bundle, KEY, signature) == expected


JULIA = """\
format_version: "2.0"
executable_inputs: [{name: x, dtype: f32, shape: kn, dims: {k: 4}}]
executable_outputs: [{name: y, dtype: f32, shape: kn, dims: {k: 3}}]
batching: {compiled_batch_sizes: [1, 8]}
"""
BY_JULIA = JULIA + "provenance: {converter: ReactantServerExport.jl}\n"


def _takes(*shapes: tuple[int, ...]) -> Signature:
    inputs = TensorType("f32", (1, 4))
    return Signature((inputs, *(TensorType("f32", s) for s in shapes)), (TensorType("f32", (1, 3)),))


@pytest.mark.parametrize(
    ("manifest", "stored", "taken", "reversed_"),
    [
        (JULIA, [(3, 4), (3,), (2, 2)], [(4, 3), (3,), (2, 2)], True),
        (JULIA, [(3, 4), (3,), (2, 2)], [(3, 4), (3,), (2, 2)], False),
        (BY_JULIA, [(3, 4), (2, 2)], [(3, 4), (2, 2)], False),
        (JULIA, [(2, 2)], [(2, 2)], False),
        (BY_JULIA, [(2, 2)], [(2, 2)], True),
        (JULIA.replace('"2.0"', '"3"'), [(3, 4)], [(4, 3)], False),
    ],
)
def test_weights_of_version_2_are_turned_as_the_program_takes_them(
    make_bundle: MakeBundle,
    manifest: str,
    stored: list[tuple[int, ...]],
    taken: list[tuple[int, ...]],
    reversed_: bool,
) -> None:
    arrays = {
        f"w{i}": np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for i, shape in enumerate(stored)
    }
    signature = _takes(*taken)
    aligned = align_weights(read_bundle(make_bundle(manifest=manifest, weights=arrays)), signature)
    assert aligned.weights is not None
    for got, array in zip(aligned.weights.arrays(), arrays.values(), strict=True):
        np.testing.assert_array_equal(got, array.T if reversed_ else array)
    if manifest != JULIA.replace('"2.0"', '"3"'):
        assert check_signature(aligned, ProgramKey(1, None), signature) == []


def test_a_bundle_without_weights_needs_no_turning(make_bundle: MakeBundle) -> None:
    bundle = read_bundle(make_bundle({"weights.safetensors": None}, manifest=JULIA))
    assert align_weights(bundle, _takes()) is bundle
