"""The encoder against PyTorch's `transformers`: computed where that is installed, else committed numbers."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from reactant_core.bundle.repository import Bundle, ProgramKey, read_bundle
from reactant_examples.minilm.checkpoint import encoder_weights, model_config, model_file
from reactant_examples.minilm.encoder import HEADS, LAYER_NORM_EPSILON, LAYERS, WIDTH, embed
from reactant_programs.artifact import read_artifact
from reactant_programs.compile import compile_artifact

pytestmark = pytest.mark.slow

TOLERANCE = 2e-5
"""Largest difference in any element; it is part of what users are promised."""

Tokenize = Callable[[list[bytes]], dict[str, NDArray[Any]]]
Encode = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]


@dataclass(frozen=True)
class Reference:
    names: list[str]
    texts: list[str]
    token_ids: list[list[int]]
    embeddings: NDArray[np.float32]


@pytest.fixture(scope="module")
def reference_maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_reference", Path(__file__).parent / "make_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference(reference_maker: ModuleType) -> Reference:
    texts = [reference_maker.full_text(entry) for entry in reference_maker.TEXTS]
    names = [entry["name"] for entry in reference_maker.TEXTS]
    if find_spec("torch") and find_spec("transformers"):
        ids, embeddings = reference_maker.compute(texts, model_file("config.json").parent)
        return Reference(names, texts, ids, embeddings)
    committed = json.loads(reference_maker.REFERENCE.read_text(encoding="utf-8"))["sentences"]
    assert [reference_maker.full_text(entry) for entry in committed] == texts, "run make_reference.py again"
    embeddings = np.array([entry["embedding"] for entry in committed], np.float32)
    return Reference(names, texts, [entry["token_ids"] for entry in committed], embeddings)


@pytest.fixture(scope="module")
def encode() -> Encode:
    weights = encoder_weights()
    jitted = jax.jit(embed)

    def run(tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        with jax.default_device(jax.devices("cpu")[0]), jax.default_matmul_precision("highest"):
            return np.asarray(jitted(dict(tensors), weights)["embedding"])

    return run


@pytest.fixture(scope="module")
def embeddings(reference: Reference, encode: Encode) -> NDArray[np.float32]:
    return encode(padded(reference.token_ids, 256))


def padded(rows: list[list[int]], length: int) -> dict[str, NDArray[np.int32]]:
    tensors = {name: np.zeros((len(rows), length), np.int32) for name in ("input_ids", "attention_mask")}
    for index, row in enumerate(rows):
        tensors["input_ids"][index, : len(row)] = row
        tensors["attention_mask"][index, : len(row)] = 1
    return tensors


def test_tokens_are_those_of_the_reference_tokenizer(reference: Reference, tokenize: Tokenize) -> None:
    for name, text, expected in zip(reference.names, reference.texts, reference.token_ids, strict=True):
        tensors = tokenize([text.encode()])
        assert tensors["input_ids"][0][tensors["attention_mask"][0] == 1].tolist() == expected, name


def test_embeddings_are_those_of_the_reference_model(
    reference: Reference, embeddings: NDArray[np.float32]
) -> None:
    assert {"English", "accents", "CJK and emoji", "empty", "10,000 words"} <= set(reference.names)
    worst = np.abs(embeddings - reference.embeddings).max(axis=1)
    assert dict(zip(reference.names, worst <= TOLERANCE, strict=True)) == dict.fromkeys(reference.names, True)


def test_embeddings_have_length_one(embeddings: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("length", [32, 128])
def test_the_amount_of_padding_does_not_matter(
    reference: Reference, embeddings: NDArray[np.float32], encode: Encode, length: int
) -> None:
    short = [index for index, row in enumerate(reference.token_ids) if len(row) <= length]
    rows = [reference.token_ids[index] for index in short]
    np.testing.assert_allclose(encode(padded(rows, length)), embeddings[short], atol=2e-6, rtol=0)


def test_what_padding_holds_does_not_matter(encode: Encode) -> None:
    tensors = padded([[101, 2314, 102]], 32)
    expected = encode(tensors)
    tensors["input_ids"][0, 3:] = 2000
    np.testing.assert_allclose(encode(tensors), expected, atol=2e-6, rtol=0)


def test_rows_of_padding_alone_stay_finite(encode: Encode) -> None:
    embeddings = encode(padded([[], [101, 2314, 102]], 32))
    assert np.isfinite(embeddings).all()


def test_the_function_has_the_published_dimensions() -> None:
    config = model_config("config.json")
    assert config["num_hidden_layers"] == LAYERS
    assert config["num_attention_heads"] == HEADS
    assert config["hidden_size"] == WIDTH
    assert config["layer_norm_eps"] == LAYER_NORM_EPSILON
    assert (config["hidden_act"], config["position_embedding_type"]) == ("gelu", "absolute")
    pooling = model_config("1_Pooling/config.json")
    assert [key for key, value in pooling.items() if value is True] == ["pooling_mode_mean_tokens"]
    assert model_config("sentence_bert_config.json")["max_seq_length"] == 256


def test_the_bundle_embeds_as_the_reference_does(
    reference: Reference, bundles: Path, tokenize_as: Callable[[Bundle], Tokenize]
) -> None:
    """Text through the bundle's own hooks and programs, one text a row, rows filled up with zeros."""
    bundle = read_bundle(bundles / "minilm")
    assert bundle.weights is not None
    tokenize = tokenize_as(bundle)
    lengths = [shape["s"] for shape in bundle.manifest.input_shapes]
    by_length: dict[int, list[int]] = {}
    for index, text in enumerate(reference.texts):
        by_length.setdefault(tokenize([text.encode()])["input_ids"].shape[1], []).append(index)
    assert sorted(by_length) == lengths
    for length, indices in by_length.items():
        tensors = tokenize([reference.texts[index].encode() for index in indices])
        batch = next(size for size in bundle.manifest.compiled_batch_sizes if size >= len(indices))
        artifact = read_artifact(bundle.programs[ProgramKey(batch, lengths.index(length))])
        program = compile_artifact(artifact, jax.devices("cpu")[0])
        rows = [
            np.pad(tensors[spec.name], ((0, batch - len(indices)), (0, 0)))
            for spec in bundle.manifest.executable_inputs
        ]
        (embeddings,) = program(*rows, *bundle.weights.arrays())
        worst = np.abs(np.asarray(embeddings)[: len(indices)] - reference.embeddings[indices]).max()
        assert worst <= TOLERANCE, f"{length} tokens, batch size {batch}"
