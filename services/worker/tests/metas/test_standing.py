"""When a meta is ready: with the models that it calls, in whatever order they come and go."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reactant_worker.models.catalog import Catalog, ModelState
from reactant_worker.models.served import ServedModel


def version(
    name: str, *calls: str, meta: bool = False, internal: bool = False, nbytes: int = 0
) -> ServedModel:
    manifest = SimpleNamespace(internal=internal)
    return ServedModel(
        bundle=cast(Any, SimpleNamespace(name=name, manifest=manifest)),
        hooks=None,
        client_inputs={},
        client_outputs={},
        executable_inputs=(),
        executable_outputs=(),
        sizes=(1,),
        variants=(),
        output_shapes={},
        weight_bytes=nbytes,
        meta=meta or bool(calls),
        calls=calls,
    )


class Watched:
    """A catalog, and what it has announced last of each name: None for one that clients must not see."""

    def __init__(self) -> None:
        self.announced: dict[str, bool | None] = {}
        self.catalog = Catalog(self.announced.__setitem__)

    def load(self, model: ServedModel) -> None:
        self.catalog.ready(self.catalog.begin(model.name), model)

    def state(self, name: str) -> tuple[ModelState, str]:
        entry = self.catalog.get(name)
        assert entry is not None
        return entry.state, entry.reason


MODELS = (version("search", "embed", "rank"), version("embed"), version("rank", internal=True))


@pytest.mark.parametrize(
    "order", [*itertools.permutations(MODELS)], ids=lambda order: " ".join(m.name for m in order)
)
def test_the_order_of_loading_does_not_matter(order: tuple[ServedModel, ...]) -> None:
    watched = Watched()
    for model in order:
        watched.load(model)
        everything = all(watched.catalog.get(m.name) is not None for m in MODELS)
        assert watched.announced.get("search", False) is everything
    assert watched.state("search") == (ModelState.READY, "")


def test_a_meta_says_what_it_lacks_and_follows_it() -> None:
    watched = Watched()
    watched.load(version("search", "embed"))
    assert watched.state("search") == (ModelState.UNAVAILABLE, "needs model 'embed', which is not there")

    entry = watched.catalog.begin("embed")
    assert watched.state("search") == (ModelState.LOADING, "needs model 'embed', which is loading")
    watched.catalog.failed(entry, "model.mlir: cut short")
    assert watched.state("search")[0] is ModelState.UNAVAILABLE
    assert "model.mlir: cut short" in watched.state("search")[1]

    watched.load(version("embed"))
    assert watched.state("search") == (ModelState.READY, "")
    # A reload that fails beside the version that serves changes nothing.
    watched.catalog.failed(entry, "model.mlir: cut short")
    assert watched.state("search") == (ModelState.READY, "")

    watched.catalog.unloading(entry)
    assert watched.announced["search"] is False
    watched.catalog.remove(entry)
    assert watched.state("search") == (ModelState.UNAVAILABLE, "needs model 'embed', which is not there")


def test_a_meta_that_calls_a_meta_is_refused_whichever_comes_first() -> None:
    for models in itertools.permutations(
        (version("outer", "inner"), version("inner", "embed"), version("embed"))
    ):
        watched = Watched()
        for model in models:
            watched.load(model)
        state, reason = watched.state("outer")
        assert state is ModelState.UNAVAILABLE
        assert "'inner', which is a meta" in reason
        assert watched.state("inner") == (ModelState.READY, "")


def test_metas_that_call_each_other_are_both_refused() -> None:
    watched = Watched()
    watched.load(version("a", "b"))
    watched.load(version("b", "a"))
    assert watched.announced == {"a": False, "b": False}


def test_a_meta_that_calls_nothing_is_ready_alone() -> None:
    watched = Watched()
    watched.load(version("alone", meta=True))
    assert watched.state("alone") == (ModelState.READY, "")


def test_an_internal_model_is_hidden_from_its_first_moment() -> None:
    watched = Watched()
    entry = watched.catalog.begin("rank", internal=True)
    assert watched.announced == {"rank": None}
    assert not [*watched.catalog.visible()]
    watched.catalog.failed(entry, "no")
    watched.load(version("rank", internal=True))
    watched.catalog.unloading(entry)
    assert watched.announced == {"rank": None}


def test_a_meta_weighs_what_its_models_weigh() -> None:
    watched = Watched()
    meta = version("search", "embed", "rank")
    watched.load(meta)
    assert watched.catalog.weight_bytes(meta) == 0
    watched.load(version("embed", nbytes=30))
    watched.load(version("rank", nbytes=12))
    assert watched.catalog.weight_bytes(meta) == 42
    assert watched.catalog.weight_bytes(version("embed", nbytes=30)) == 30
