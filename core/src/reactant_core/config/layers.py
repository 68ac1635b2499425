"""Values laid over each other leaf by leaf, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from reactant_core.config.accepted import faults_of
from reactant_core.config.document import Document, KeyPath, dotted
from reactant_core.config.effective import DEFAULT, Effective, leaves
from reactant_core.config.faults import ConfigError, Fault

T = TypeVar("T", bound=BaseModel)

Leaf = tuple[Any, str]
"""A value and where it came from."""

Layer = dict[KeyPath, Leaf]


def flatten(tree: Mapping[str, Any], document: Document, above: KeyPath = ()) -> Layer:
    """Each leaf of `tree`, which stands at `above` in the document, with its source; paths are relative."""
    layer: Layer = {}

    def below(value: Any, path: KeyPath) -> None:
        if not isinstance(value, Mapping):
            layer[path] = (value, document.source((*above, *path)))
            return
        for key, item in value.items():
            below(item, (*path, key))

    below(tree, ())
    return layer


def put(layer: Layer, path: KeyPath, leaf: Leaf) -> None:
    """Sets a leaf. A null section above it and values below it give way."""
    for other in [other for other in layer if other[: len(path)] == path or path[: len(other)] == other]:
        del layer[other]
    layer[path] = leaf


def validated(model: type[T], layer: Layer) -> Effective[T]:
    """The layer as a `model`, with the source of each value.

    Raises:
        ConfigError: what the model refuses.
    """
    tree: dict[str | int, Any] = {}
    for path, (value, _) in layer.items():
        at = tree
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = value
    try:
        config = model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(faults_of(error, model, lambda path: _source(layer, path))) from None
    return Effective(config, {dotted(path): _source(layer, path) for path, _ in leaves(config)})


def checked(model: type[T], document: Document) -> tuple[T | None, list[Fault]]:
    """The file alone as a `model`, None when it is none, and everything wrong with its text and values."""
    faults = list(document.faults)
    try:
        return model.model_validate(document.tree), faults
    except ValidationError as error:
        # What is wrong with the text of a value says more than what is wrong with what was made of it.
        known = {fault.key for fault in faults}
        found = faults_of(error, model, document.source)
        return None, faults + [fault for fault in found if fault.key not in known]


def _source(layer: Layer, path: KeyPath) -> str:
    for end in range(len(path), 0, -1):
        if path[:end] in layer:
            return layer[path[:end]][1]
    return next((leaf[1] for other, leaf in layer.items() if other[: len(path)] == path), DEFAULT)
