from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from reactant_examples.demo import MODELS, DemoError, main, wait_ready
from reactant_examples.presentation import Style, digit_row, page_picture, ranking

PLAIN = Style(enabled=False)


@dataclass
class FakeClient:
    """Answers as a server whose repository index is `models`, in tritonclient's JSON form."""

    models: list[dict[str, str]]
    ready: set[str] = field(default_factory=set)

    def is_model_ready(self, name: str, client_timeout: float) -> bool:
        return name in self.ready

    def get_model_repository_index(self, client_timeout: float, as_json: bool) -> dict[str, Any]:
        # An empty list is left out of a message's JSON.
        return {"models": self.models} if self.models else {}


def test_ready_models_are_not_waited_for() -> None:
    wait_ready(FakeClient([], set(MODELS)), "here:1", patience=0)


def test_a_model_that_the_server_lacks_is_named_with_how_to_build_it() -> None:
    with pytest.raises(DemoError, match=r"here:1 has no model digits(?s:.*)reactant_examples\.build digits"):
        wait_ready(
            FakeClient([{"name": "minilm", "state": "READY"}], {*MODELS} - {"digits"}), "here:1", patience=0
        )


def test_a_model_that_failed_is_named_with_its_reason() -> None:
    models = [{"name": "minilm", "state": "UNAVAILABLE", "reason": "model.b8.mlir: cut short"}]
    with pytest.raises(DemoError, match=r"cannot serve minilm: model\.b8\.mlir: cut short"):
        wait_ready(FakeClient(models, {*MODELS} - {"minilm"}), "here:1", patience=60)


def test_models_that_take_too_long_are_named() -> None:
    models = [{"name": name, "state": "LOADING"} for name in ("minilm", "search")]
    with pytest.raises(DemoError, match="minilm, search still not ready after 0 s"):
        wait_ready(FakeClient(models, {*MODELS} - {"minilm", "search"}), "here:1", patience=0)


@pytest.mark.slow
def test_without_a_server_the_demo_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        # Bound but not listening: nobody answers there, and nobody else can take the port meanwhile.
        taken.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["--url", url]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"No server answers at {url} (")
    assert "make run" in shown.err


def test_sentences_are_ranked_by_score() -> None:
    scores = np.array([0.1, 0.9, -0.2], np.float32)
    heading, *lines = ranking("which?", ["middle", "best", "worst"], scores, PLAIN).splitlines()
    assert heading.strip() == "which?"
    assert [line.split()[0] for line in lines] == ["0.90", "0.10", "-0.20"]
    assert [line.split()[-1] for line in lines] == ["best", "middle", "worst"]
    assert [line.count("━") for line in lines] == [18, 2, 0]


def test_long_sentences_are_cut_to_the_screen() -> None:
    text = ranking("which?", ["word " * 40], np.array([1.0], np.float32), PLAIN)
    assert max(map(len, text.splitlines())) <= 80


def test_digits_stand_side_by_side_over_guess_and_label() -> None:
    images = np.zeros((2, 8, 8), np.float32)
    images[0, 0, 0], images[1, 0, 0] = 16.0, 8.0
    probabilities = np.eye(10, dtype=np.float32)[[3, 7]]
    lines = digit_row(images, np.array([3, 1], np.int32), probabilities, PLAIN).splitlines()
    assert len(lines) == 10
    assert lines[0] == "  ██" + " " * 17 + "▒▒"
    assert lines[8].split() == ["3", "(100.0%)", "7", "(100.0%)"]
    assert lines[9].split() == ["label", "3", "label", "1"]


def test_colour_only_where_it_is_asked_for() -> None:
    scores = np.array([0.5], np.float32)
    assert "\x1b" not in ranking("which?", ["one"], scores, PLAIN)
    assert "\x1b[32m" in ranking("which?", ["one"], scores, Style(enabled=True))


def test_a_page_has_what_was_read_beside_each_digit() -> None:
    image = np.zeros((4, 8), np.float32)
    image[0, 2], image[1, 3], image[2:, 4] = 16.0, 16.0, 16.0
    corners = np.array([[0, 2], [2, 4]], np.int32)
    digits, labels = np.array([7, 1], np.int32), np.array([7, 2], np.int32)
    assert page_picture(image, corners, digits, labels, PLAIN) == "   7▀▄\n     1█"
    coloured = page_picture(image, corners, digits, labels, Style(enabled=True))
    assert "\x1b[32m7\x1b[0m" in coloured
    assert "\x1b[31m1\x1b[0m" in coloured
