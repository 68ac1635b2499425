"""The sentence encoder as a JAX function: BERT, mean pooling, unit length.

BERT is Devlin et al. 2019 (arXiv:1810.04805) with the dimensions of all-MiniLM-L6-v2; mean pooling over
the attention mask is Reimers and Gurevych 2019 (arXiv:1908.10084). Weights keep the names and layouts of
the published checkpoint, so a linear layer's matrix is [out, in].
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LAYERS = 6
HEADS = 12
WIDTH = 384
LAYER_NORM_EPSILON = 1e-12
LOWEST = float(np.finfo(np.float32).min)

Weights = Mapping[str, jax.Array]


def embed(inputs: Mapping[str, jax.Array], weights: Weights) -> dict[str, jax.Array]:
    """Embed tokenized sentences.

    `input_ids` and `attention_mask` are i32 [n, s], the mask 1 on tokens and 0 on padding. The result is
    `embedding` f32 [n, 384], each row of length 1. What padding holds, and how much of it there is, does
    not matter; a row of padding alone gives finite numbers that mean nothing.
    """
    mask = inputs["attention_mask"] != 0
    hidden = _embeddings(inputs["input_ids"], weights)
    for index in range(LAYERS):
        hidden = _layer(hidden, mask, weights, f"encoder.layer.{index}")
    return {"embedding": _unit_length(_mean_pool(hidden, mask))}


def _embeddings(input_ids: jax.Array, weights: Weights) -> jax.Array:
    """Word, position and segment embeddings, summed and normalised; a lone sentence is segment 0."""
    words = weights["embeddings.word_embeddings.weight"][input_ids]
    positions = weights["embeddings.position_embeddings.weight"][: input_ids.shape[1]]
    segment = weights["embeddings.token_type_embeddings.weight"][0]
    return _layer_norm(words + positions + segment, weights, "embeddings.LayerNorm")


def _layer(hidden: jax.Array, mask: jax.Array, weights: Weights, name: str) -> jax.Array:
    """One post-norm transformer layer, [n, s, width] to [n, s, width]."""
    attended = _linear(
        _attention(hidden, mask, weights, f"{name}.attention.self"), weights, f"{name}.attention.output.dense"
    )
    hidden = _layer_norm(hidden + attended, weights, f"{name}.attention.output.LayerNorm")
    # BERT's gelu is the exact one, through erf.
    widened = jax.nn.gelu(_linear(hidden, weights, f"{name}.intermediate.dense"), approximate=False)
    return _layer_norm(
        hidden + _linear(widened, weights, f"{name}.output.dense"), weights, f"{name}.output.LayerNorm"
    )


def _attention(hidden: jax.Array, mask: jax.Array, weights: Weights, name: str) -> jax.Array:
    """Multi-head attention of every token over the tokens that `mask` [n, s] keeps."""
    query, key, value = (
        _split_heads(_linear(hidden, weights, f"{name}.{part}")) for part in ("query", "key", "value")
    )
    scores = (query @ key.swapaxes(-1, -2)) / jnp.sqrt(jnp.float32(WIDTH // HEADS))
    # The lowest finite number instead of -inf keeps a row that is padding alone free of NaN.
    scores = jnp.where(mask[:, None, None, :], scores, LOWEST)
    context = jax.nn.softmax(scores, axis=-1) @ value
    return context.transpose(0, 2, 1, 3).reshape(hidden.shape)


def _split_heads(hidden: jax.Array) -> jax.Array:
    """[n, s, width] to [n, heads, s, width / heads].

    Heads go before positions because XLA's CPU batched matrix products take twice as long otherwise.
    """
    rows, length, _ = hidden.shape
    return hidden.reshape(rows, length, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def _linear(hidden: jax.Array, weights: Weights, name: str) -> jax.Array:
    return jnp.einsum("nsi,oi->nso", hidden, weights[f"{name}.weight"]) + weights[f"{name}.bias"]


def _layer_norm(hidden: jax.Array, weights: Weights, name: str) -> jax.Array:
    centred = hidden - hidden.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    scaled = centred * lax.rsqrt(variance + LAYER_NORM_EPSILON)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _mean_pool(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean of the tokens' vectors, [n, s, width] to [n, width]; 0 where there is no token."""
    kept = mask.astype(hidden.dtype)[:, :, None]
    return (hidden * kept).sum(axis=1) / jnp.maximum(kept.sum(axis=1), 1.0)


def _unit_length(vectors: jax.Array) -> jax.Array:
    length = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / jnp.maximum(length, 1e-12)
