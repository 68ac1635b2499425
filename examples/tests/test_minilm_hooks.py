from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer

from reactant_examples.minilm.checkpoint import model_file

Tokenize = Callable[[list[bytes]], dict[str, NDArray[Any]]]

CLS, SEP = 101, 102


def refusal(tokenize: Tokenize, texts: list[bytes]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (its type is the fake's own)
        tokenize(texts)
    assert type(caught.value).__name__ == "Refused"
    return str(caught.value)


def test_text_that_is_not_utf8_is_refused_naming_the_element(tokenize: Tokenize) -> None:
    message = refusal(tokenize, [b"fine", b"", b"also fine", b"caf\xe9 noir"])
    assert message == "text[3]: not valid UTF-8 at byte 3 (0xe9, invalid continuation byte)"


def test_every_element_that_is_not_utf8_is_named(tokenize: Tokenize) -> None:
    message = refusal(tokenize, [b"\xff", b"fine", "é".encode()[:1]])
    assert message == (
        "text[0]: not valid UTF-8 at byte 0 (0xff, invalid start byte); "
        "text[2]: not valid UTF-8 at byte 0 (0xc3, unexpected end of data)"
    )


def test_a_refusal_of_many_elements_stays_short(tokenize: Tokenize) -> None:
    message = refusal(tokenize, [b"\xff"] * 30)
    assert "text[7]: " in message
    assert "text[8]: " not in message
    assert message.endswith("; and 22 more elements")
    assert len(message) < 1024


@pytest.mark.parametrize("surrogate", [b"\xed\xa0\x80", b"\xc0\x80"])
def test_surrogates_and_overlong_forms_are_not_utf8(tokenize: Tokenize, surrogate: bytes) -> None:
    assert refusal(tokenize, [surrogate]).startswith("text[0]: not valid UTF-8")


def test_an_empty_text_is_its_two_marks(tokenize: Tokenize) -> None:
    tensors = tokenize([b""])
    assert tensors["input_ids"].shape == (1, 32)
    assert tensors["input_ids"][0, :3].tolist() == [CLS, SEP, 0]
    assert tensors["attention_mask"].sum() == 2


def test_no_texts_give_no_rows(tokenize: Tokenize) -> None:
    tensors = tokenize([])
    assert {name: (array.shape, array.dtype) for name, array in tensors.items()} == {
        "input_ids": ((0, 32), np.dtype(np.int32)),
        "attention_mask": ((0, 32), np.dtype(np.int32)),
    }


@pytest.mark.parametrize(
    ("words", "length", "tokens"),
    [(30, 32, 32), (31, 128, 33), (126, 128, 128), (127, 256, 129), (254, 256, 256), (10_000, 256, 256)],
)
def test_the_shortest_length_that_holds_the_text_is_used(
    tokenize: Tokenize, words: int, length: int, tokens: int
) -> None:
    tensors = tokenize([b" ".join([b"river"] * words)])
    assert tensors["input_ids"].shape == tensors["attention_mask"].shape == (1, length)
    assert tensors["attention_mask"][0].tolist() == [1] * tokens + [0] * (length - tokens)
    assert tensors["input_ids"][0, tokens - 1] == SEP


def test_the_longest_text_decides_for_the_whole_request(tokenize: Tokenize) -> None:
    tensors = tokenize([b"short", b" ".join([b"river"] * 50)])
    assert tensors["input_ids"].shape == (2, 128)
    assert tensors["attention_mask"].sum(axis=1).tolist() == [3, 52]


def test_the_tokenizer_starts_no_threads_of_its_own(minilm_hooks: ModuleType) -> None:
    assert minilm_hooks.__name__ == "hooks_under_test"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


@pytest.fixture(scope="module")
def whole_text_ids() -> Callable[[str], list[int]]:
    """Token ids of a text cut to 256 by the tokenizer itself, which reads all of it."""
    tokenizer = Tokenizer.from_file(str(model_file("tokenizer.json")))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return lambda text: list(tokenizer.encode(text).ids)


WORDS = st.sampled_from(
    [
        "a",
        "river",
        "unhurriedly",
        "don't",
        "x" * 99,
        "x" * 101,
        "日本",
        "é",
        "e\u0301",
        "ﬁ",
        "한글",
        "[SEP]",
        "🌞",
    ]
)
GAPS = st.sampled_from([" ", "", "\t", "  \n ", ", ", "\u3000", "\u0301"])


@given(parts=st.lists(st.tuples(WORDS, GAPS), max_size=60), times=st.integers(1, 60))
@settings(deadline=None)
@pytest.mark.slow
def test_reading_only_the_head_of_a_text_changes_no_token(
    tokenize: Tokenize,
    whole_text_ids: Callable[[str], list[int]],
    parts: list[tuple[str, str]],
    times: int,
) -> None:
    text = "".join(word + gap for word, gap in parts) * times
    tensors = tokenize([text.encode()])
    ids = tensors["input_ids"][0][tensors["attention_mask"][0] == 1].tolist()
    assert ids == whole_text_ids(text)
