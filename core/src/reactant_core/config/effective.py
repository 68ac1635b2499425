"""A configuration together with where each of its values came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

from pydantic import BaseModel, SecretBytes, SecretStr

from reactant_core.config.accepted import shown
from reactant_core.config.document import KeyPath, dotted

T = TypeVar("T", bound=BaseModel)

DEFAULT = "default"


@final
@dataclass(frozen=True, slots=True)
class Effective(Generic[T]):
    """The outcome of loading.

    Attributes:
        value: the configuration.
        sources: for each dotted key `default`, `file:line`, a variable's name, or what it was derived from.
        notes: what was given and not followed, and why.
    """

    value: T
    sources: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """Dotted key, value as text (secrets masked) and source of each value."""
        for path, value in leaves(self.value):
            key = dotted(path)
            yield key, _text(value), self.sources.get(key, DEFAULT)

    def describe(self) -> str:
        """One line `key = value  (source)` for each value, secrets masked."""
        return "\n".join(f"{key} = {value}  ({source})" for key, value, source in self.entries())


def leaves(value: BaseModel) -> Iterator[tuple[KeyPath, Any]]:
    """Each value that is neither a section nor a mapping with entries, with its path.

    Entries of lists and mappings give what they set themselves, not every default once more.
    """
    yield from _below((), value, entry=False)


def _below(path: KeyPath, value: Any, *, entry: bool) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            if not entry or name in value.model_fields_set:
                yield from _below((*path, field.alias or name), getattr(value, name), entry=entry)
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _below((*path, key), item, entry=True)
    elif isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
        for index, item in enumerate(value):
            yield from _below((*path, index), item, entry=True)
    else:
        yield path, value


def _text(value: Any) -> str:
    if isinstance(value, SecretStr | SecretBytes):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_text(item) for item in value)}]"
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, bool) or value is None:
        return shown(value)
    return str(value)
