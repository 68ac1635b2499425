"""What a field accepts, in words, and pydantic's findings as faults."""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from reactant_core.config.document import KeyPath, dotted
from reactant_core.config.faults import Fault

_LONGEST_VALUE = 120
_MASK = "**********"


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name most like `name`, if one is like it at all."""
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return found[0] if found else None


def field_type(field: FieldInfo) -> Any:
    """The field's type with its constraints."""
    parts = [*field.metadata]
    if field.description is not None:
        parts.append(FieldInfo(description=field.description))
    return Annotated[field.annotation, *parts] if parts else field.annotation


def _split(annotation: Any) -> tuple[Any, list[Any], str | None]:
    metadata: list[Any] = []
    description = None
    while get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        for extra in extras:
            if isinstance(extra, FieldInfo):
                metadata.extend(extra.metadata)
                description = extra.description or description
            else:
                metadata.append(extra)
    return annotation, metadata, description


def accepted(annotation: Any) -> str:
    """What a value of `annotation` may be, as a phrase."""
    annotation, metadata, description = _split(annotation)
    if description is not None:
        return description
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _either([str(argument) for argument in arguments])
    if origin in (Union, types.UnionType):
        return _either([accepted(arm) if arm is not type(None) else "null" for arm in arguments])
    if origin is tuple:
        return f"a list, each item {accepted(arguments[0])}"
    if origin is dict:
        return f"a mapping, each value {accepted(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a mapping with keys out of {', '.join(known_keys(annotation))}"
    if annotation is bool:
        return "true or false"
    if annotation is int:
        return "a whole number" + _range(metadata)
    if annotation is float:
        return "a number" + _range(metadata)
    if annotation is Path:
        return "a path"
    return "text" if not any(isinstance(item, MinLen) for item in metadata) else "text, not empty"


def _either(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _range(metadata: Sequence[Any]) -> str:
    low: str | None = None
    high: str | None = None
    for item in metadata:
        if isinstance(item, Ge):
            low = f"from {item.ge}"
        elif isinstance(item, Gt):
            low = f"above {item.gt}"
        elif isinstance(item, Le):
            high = f"up to {item.le}"
        elif isinstance(item, Lt):
            high = f"below {item.lt}"
    return "".join(f" {bound}" for bound in (low, high) if bound is not None)


def known_keys(model: type[BaseModel]) -> list[str]:
    """The keys of a mapping for `model`, as they are written."""
    return [field.alias or name for name, field in model.model_fields.items()]


def type_at(annotation: Any, path: KeyPath) -> Any:
    """The type of what stands at `path` below a value of `annotation`; None where nothing is known."""
    for part in path:
        annotation = _step(annotation, part)
        if annotation is None:
            return None
    return annotation


def _step(annotation: Any, part: str | int) -> Any:
    annotation, _, _ = _split(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return next((found for arm in arguments if (found := _step(arm, part)) is not None), None)
    if origin is tuple:
        return arguments[0]
    if origin is dict:
        return arguments[1]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if part in (name, field.alias):
                return field_type(field)
    return None


def without_empty(tree: Mapping[str, Any], root: Any) -> dict[str, Any]:
    """`tree` without keys that hold nothing where a mapping or a list belongs.

    `workers:` with all its entries commented out reads as null, and means none.
    """
    kept = {}
    for key, value in tree.items():
        below = _step(root, key)
        kind, _, _ = _split(below)
        if value is None and (
            get_origin(kind) in (tuple, dict) or (isinstance(kind, type) and issubclass(kind, BaseModel))
        ):
            continue
        kept[key] = without_empty(value, below) if isinstance(value, Mapping) else value
    return kept


def secret(annotation: Any) -> bool:
    """Whether values of this type must not be shown."""
    annotation, _, _ = _split(annotation)
    if isinstance(annotation, type) and issubclass(annotation, SecretStr | SecretBytes):
        return True
    return any(secret(argument) for argument in get_args(annotation))


def shown(value: Any, annotation: Any = None) -> str:
    """A given value for a message: quoted, cut, secrets masked."""
    if annotation is not None and secret(annotation):
        return _MASK
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = f"[{', '.join(shown(item) for item in value)}]" if isinstance(value, tuple) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def faults_of(
    error: ValidationError, root: Any, source: Callable[[KeyPath], str], prefix: str = ""
) -> list[Fault]:
    """pydantic's findings about a value of type `root` as faults, one for each key.

    Args:
        error: what validation raised.
        root: the type validated against.
        source: where a path stands.
        prefix: put before dotted keys.
    """
    faults: dict[str, Fault] = {}
    for finding in error.errors(include_url=False):
        path: KeyPath = tuple(part for part in finding["loc"] if part != "[key]")
        key = prefix + dotted(path)
        if key in faults:
            continue
        faults[key] = _fault(finding, root, path, key, source(path))
    return list(faults.values())


def _fault(finding: Mapping[str, Any], root: Any, path: KeyPath, key: str, source: str) -> Fault:
    if finding["type"] == "extra_forbidden":
        model, _, _ = _split(type_at(root, path[:-1]))
        models = [model, *get_args(model)]
        keys = next((known_keys(m) for m in models if isinstance(m, type) and issubclass(m, BaseModel)), [])
        suggestion = nearest(str(path[-1]), keys)
        problem = "unknown key" if suggestion else f"unknown key; known are {', '.join(keys)}"
        return Fault(key, problem, source, suggestion)
    annotation = type_at(root, path)
    if finding["type"] == "missing":
        return Fault(key, f"is missing; accepted is {accepted(annotation)}", source)
    given = shown(finding["input"], annotation)
    if finding["type"] == "value_error":
        return Fault(key, f"{given}: {finding['ctx']['error']}", source)
    if annotation is None:
        return Fault(key, f"{given}: {finding['msg']}", source)
    phrase = accepted(annotation)
    choices = str(finding["ctx"].get("expected", "")) if "ctx" in finding else ""
    suggestion = None
    if finding["type"] == "literal_error" and isinstance(finding["input"], str):
        suggestion = nearest(
            finding["input"], [choice.strip("'") for choice in choices.replace(" or ", ", ").split(", ")]
        )
    return Fault(key, f"{given}; accepted is {phrase}", source, suggestion)
