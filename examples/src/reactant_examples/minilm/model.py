"""Hooks of the minilm bundle: UTF-8 text to token ids.

The server runs this file from inside the bundle, so it imports nothing from the package it was built by.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The hooks already run on a pool of threads; the tokenizer's own pool would fight it for the cores, and
# warns about every fork of the process.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Tokenizer  # after the line above, which it reads

# A sentence's first 256 tokens are nearly always within this many characters; see `_token_ids`.
HEAD_CHARACTERS = 2048
FAULTS_NAMED = 8

_tokenizer: Tokenizer
_lengths: tuple[int, ...]
_end: int


def setup(bundle: Any) -> None:
    """Load the vocabulary, and the lengths a program was compiled for, shortest first."""
    global _tokenizer, _lengths, _end  # noqa: PLW0603  (set once, before the first request)
    _tokenizer = Tokenizer.from_file(str(bundle.path / "tokenizer.json"))
    # The file asks for 128 tokens exactly; this model's limit is the longest compiled length.
    _tokenizer.no_truncation()
    _tokenizer.no_padding()
    _lengths = tuple(sorted(shape["s"] for shape in bundle.manifest.input_shapes))
    _end = _tokenizer.encode("").ids[-1]


def preprocess(inputs: dict[str, NDArray[Any]], request: Any) -> dict[str, NDArray[Any]]:
    """`text` BYTES [n] to `input_ids` and `attention_mask` i32 [n, s].

    `s` is the shortest compiled length that holds the request's longest text. A text with more tokens
    than the longest length keeps its first ones, the two that mark its beginning and end included.
    """
    rows = _token_ids(_decode(inputs["text"], request))
    needed = max((len(row) for row in rows), default=0)
    length = next(length for length in _lengths if length >= needed)
    input_ids = np.zeros((len(rows), length), np.int32)
    attention_mask = np.zeros((len(rows), length), np.int32)
    for index, row in enumerate(rows):
        input_ids[index, : len(row)] = row
        attention_mask[index, : len(row)] = 1
    return {"input_ids": input_ids, "attention_mask": attention_mask}


def _decode(elements: NDArray[Any], request: Any) -> list[str]:
    texts, faults = [], []
    for index, element in enumerate(elements):
        try:
            texts.append(element.decode("utf-8"))
        except UnicodeDecodeError as error:
            found = f"0x{element[error.start]:02x}, {error.reason}"
            faults.append(f"text[{index}]: not valid UTF-8 at byte {error.start} ({found})")
    if faults:
        named = "; ".join(faults[:FAULTS_NAMED])
        more = f"; and {len(faults) - FAULTS_NAMED} more elements" if len(faults) > FAULTS_NAMED else ""
        request.invalid(named + more)
    return texts


def _token_ids(texts: list[str]) -> list[list[int]]:
    """Token ids of every text, cut to the longest compiled length.

    Tokens depend on nothing outside their own word, so the beginning of a long text is enough when it
    gives more tokens than are kept and the last one kept is not of the word that the cut may have hit.
    Without this a text of a megabyte costs seconds of which all but a millisecond is thrown away.
    """
    limit = _lengths[-1]
    encodings = _tokenizer.encode_batch([text[:HEAD_CHARACTERS] for text in texts])
    rows = []
    for text, head in zip(texts, encodings, strict=True):
        encoding = head
        if len(text) > HEAD_CHARACTERS:
            words = head.word_ids
            if len(words) <= limit or words[limit - 2] == words[-2]:
                encoding = _tokenizer.encode(text)
        ids = encoding.ids
        rows.append(ids if len(ids) <= limit else [*ids[: limit - 1], _end])
    return rows
