"""The metas as their bundles hold them, on models that are run here; tests/e2e has the server's part."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from reactant_core.bundle.repository import Bundle, ProgramKey, read_bundle
from reactant_examples.digits.data import split_digits
from reactant_examples.digits.pages import PAGE, draw_page
from reactant_programs.artifact import read_artifact
from reactant_programs.compile import Program, compile_artifact

pytestmark = pytest.mark.slow

SETS = Path(__file__).with_name("data") / "search_sets.json"
Tensors = dict[str, NDArray[Any]]
MetaOf = Callable[[Bundle], ModuleType]


class Refused(Exception):
    """What FakeRequest raises where a server would answer INVALID_ARGUMENT."""


class FakeRequest:
    def invalid(self, message: str) -> None:
        raise Refused(message)


@dataclass
class Models:
    """Stands in for `call`: runs the smallest program that fits, and notes the rows of each call."""

    folder: Path
    tokenize_as: Callable[[Bundle], Callable[[list[bytes]], Tensors]]
    calls: list[tuple[str, int]] = field(default_factory=list)
    bundles: dict[str, Bundle] = field(default_factory=dict)
    programs: dict[Path, Program] = field(default_factory=dict)

    def __call__(self, name: str, inputs: Tensors) -> Tensors:
        if name not in self.bundles:
            self.bundles[name] = read_bundle(self.folder / name)
        bundle = self.bundles[name]
        variant = None
        if name == "minilm":
            inputs = self.tokenize_as(bundle)(list(inputs["text"]))
            lengths = [shape["s"] for shape in bundle.manifest.input_shapes]
            variant = lengths.index(inputs["input_ids"].shape[1])
        (rows,) = {len(array) for array in inputs.values()}
        self.calls.append((name, rows))
        sizes = bundle.manifest.compiled_batch_sizes
        assert 0 < rows <= sizes[-1]
        size = next(size for size in sizes if size >= rows)
        program = self._program(bundle.programs[ProgramKey(size, variant)])
        padded = [
            np.concatenate([array, np.zeros((size - rows, *array.shape[1:]), array.dtype)])
            for array in (inputs[spec.name] for spec in bundle.manifest.executable_inputs)
        ]
        assert bundle.weights is not None
        results = program(*padded, *bundle.weights.arrays())
        names = [spec.name for spec in bundle.manifest.executable_outputs]
        return {name: np.asarray(result)[:rows] for name, result in zip(names, results, strict=True)}

    def _program(self, file: Path) -> Program:
        if file not in self.programs:
            self.programs[file] = compile_artifact(read_artifact(file), jax.devices("cpu")[0])
        return self.programs[file]

    def scratch(self, shape: tuple[int, ...], dtype: str = "float32") -> NDArray[Any]:
        return np.full(shape, np.nan, dtype)


@pytest.fixture(scope="module")
def _loaded(bundles: Path, tokenize_as: Any) -> Models:
    return Models(bundles, tokenize_as)


@pytest.fixture
def models(_loaded: Models) -> Models:
    """What is read and compiled stays from one test to the next."""
    return replace(_loaded, calls=[])


def run(code: ModuleType, models: Models, **inputs: NDArray[Any]) -> Tensors:
    outputs: Tensors = code.run(inputs, models, FakeRequest())
    return outputs


def text(*elements: bytes) -> NDArray[Any]:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array


def test_search_has_the_right_passage_first(bundles: Path, meta_of: MetaOf, models: Models) -> None:
    code = meta_of(read_bundle(bundles / "search"))
    sets = json.loads(SETS.read_text(encoding="utf-8"))["sets"]
    assert len(sets) == 10
    for one in sets:
        passages = text(*(passage.encode() for passage in one["passages"]))
        found = run(code, models, query=text(one["query"].encode()), passages=passages)
        assert found["order"][0] == one["right"], one["query"]
        assert sorted(found["order"]) == list(range(len(passages)))
        assert (np.diff(found["scores"]) <= 0).all()
    assert [rows for _, rows in models.calls] == [1 + len(one["passages"]) for one in sets]


def test_search_embeds_many_passages_in_batches(bundles: Path, meta_of: MetaOf, models: Models) -> None:
    code = meta_of(read_bundle(bundles / "search"))
    passages = [b"a passage about number %d" % index for index in range(70)]
    found = run(code, models, query=text(passages[42]), passages=text(*passages))
    assert found["order"][0] == 42
    assert found["scores"][0] == pytest.approx(1, abs=1e-5)
    assert models.calls == [("minilm", 32), ("minilm", 32), ("minilm", 7)]


def test_search_of_no_passages_finds_nothing(bundles: Path, meta_of: MetaOf, models: Models) -> None:
    found = run(meta_of(read_bundle(bundles / "search")), models, query=text(b"what?"), passages=text())
    assert {name: (array.shape, str(array.dtype)) for name, array in found.items()} == {
        "order": ((0,), "int32"),
        "scores": ((0,), "float32"),
    }


@pytest.mark.parametrize(
    ("query", "passages", "named"),
    [(b"\xff", [b"a"], "query[0]"), (b"a", [b"b", b"\xc3"], "passages[1]")],
)
def test_search_refuses_what_is_no_text_by_the_clients_names(
    bundles: Path, meta_of: MetaOf, models: Models, query: bytes, passages: list[bytes], named: str
) -> None:
    with pytest.raises(Refused) as refused:
        run(meta_of(read_bundle(bundles / "search")), models, query=text(query), passages=text(*passages))
    assert str(refused.value).startswith(f"{named}: not valid UTF-8 at byte 0")
    assert models.calls == []


def test_pages_are_read(bundles: Path, meta_of: MetaOf, models: Models) -> None:
    """Every digit is found, and nothing else; nearly all are read right, as many as `digits` itself does."""
    code = meta_of(read_bundle(bundles / "page_reader"))
    _, held_out = split_digits()
    right = total = 0
    for seed in range(30):
        page = draw_page(held_out, seed % 10, seed)
        found = run(code, models, page=page.image)
        assert len(found["digit"]) == len(page.labels)
        # In the order of the page where no two are at nearly the same height.
        for corner, label in zip(page.corners, page.labels, strict=True):
            near = np.abs(found["corner"] - corner).max(axis=1) <= 1
            assert near.sum() == 1
            right += int(found["digit"][near.argmax()] == label)
            total += 1
        assert ((found["probability"] > 0.1) & (found["probability"] <= 1)).all()
    assert right / total >= 0.93
    crops = [rows for name, rows in models.calls if name == "digits"]
    assert crops == [seed % 10 for seed in range(30) if seed % 10]


def test_an_empty_page_is_not_read_at_all(bundles: Path, meta_of: MetaOf, models: Models) -> None:
    found = run(
        meta_of(read_bundle(bundles / "page_reader")), models, page=np.zeros((PAGE, PAGE), np.float32)
    )
    assert {name: (array.shape, str(array.dtype)) for name, array in found.items()} == {
        "digit": ((0,), "int32"),
        "probability": ((0,), "float32"),
        "corner": ((0, 2), "int32"),
    }
    assert models.calls == [("digit_finder", 1)]


def test_a_page_with_values_that_are_no_numbers_is_refused(
    bundles: Path, meta_of: MetaOf, models: Models
) -> None:
    page = np.zeros((PAGE, PAGE), np.float32)
    page[3, 3] = np.nan
    with pytest.raises(Refused, match="not finite"):
        run(meta_of(read_bundle(bundles / "page_reader")), models, page=page)


def test_a_page_without_room_is_not_drawn() -> None:
    with pytest.raises(ValueError, match="no room for 60 digits"):
        draw_page(split_digits()[1], 60, seed=0)
