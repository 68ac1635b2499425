"""Environment variables as values for fields: one variable for each scalar, lists colon-separated."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, final, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

from reactant_core.config.accepted import accepted, faults_of, field_type, nearest, shown
from reactant_core.config.document import KeyPath
from reactant_core.config.faults import Fault


@final
@dataclass(frozen=True, slots=True)
class Variable:
    """A field that a variable can set: its name in the environment, its place, its type."""

    name: str
    path: KeyPath
    annotation: Any


def variables(model: type[BaseModel], prefix: str, skip: Sequence[str] = ()) -> dict[str, Variable]:
    """Every variable that can set a field of `model`, by name; `skip` names top-level fields left out."""
    found = {}
    for path, annotation in _leaves(model):
        if path[0] not in skip:
            name = prefix + "_".join(str(part) for part in path).upper()
            found[name] = Variable(name, path, annotation)
    return found


def _leaves(model: type[BaseModel]) -> Iterator[tuple[KeyPath, Any]]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        section = _section(field.annotation)
        if section is not None:
            for path, annotation in _leaves(section):
                yield (key, *path), annotation
        elif not _structured(field.annotation):
            yield (key,), field_type(field)


def _section(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for arm in get_args(annotation) if (found := _section(arm)) is not None), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None


def _structured(annotation: Any) -> bool:
    if get_origin(annotation) is dict:
        return True
    return get_origin(annotation) is tuple and _section(get_args(annotation)[0]) is not None


def read_variables(
    environ: Mapping[str, str], known: Mapping[str, Variable]
) -> tuple[dict[Variable, Any], list[Fault]]:
    """Values of the variables that are set (an empty one counts as not set), and what is wrong with them."""
    values: dict[Variable, Any] = {}
    faults: list[Fault] = []
    for name, variable in known.items():
        text = environ.get(name, "").strip()
        if not text:
            continue
        try:
            values[variable] = _convert(variable.annotation, text)
        except ValidationError as error:
            faults.append(_fault(variable, text, error))
    return values, faults


def _fault(variable: Variable, text: str, error: ValidationError) -> Fault:
    custom = next((found["ctx"]["error"] for found in error.errors() if found["type"] == "value_error"), None)
    problem = str(custom) if custom is not None else f"accepted is {_phrase(variable.annotation)}"
    found = faults_of(error, variable.annotation, lambda _: variable.name)[0]
    given = shown(text, variable.annotation)
    return Fault(variable.name, f"{given}; {problem}", variable.name, found.suggestion)


def unknown_variable(name: str, prefix: str, known: Sequence[str]) -> Fault:
    """The fault of a variable that begins with `prefix` and is not known, with the nearest that is."""
    # The prefix that all share would make all of them look alike.
    suggestion = nearest(name.removeprefix(prefix), [other.removeprefix(prefix) for other in known])
    return Fault(name, "unknown variable", name, None if suggestion is None else prefix + suggestion)


def _is_list(annotation: Any) -> bool:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_origin(annotation) is tuple


def _phrase(annotation: Any) -> str:
    if not _is_list(annotation):
        return accepted(annotation)
    return f"{accepted(annotation)}, separated by colons"


def _convert(annotation: Any, text: str) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    if _is_list(annotation):
        return adapter.validate_python(tuple(part.strip() for part in text.split(":") if part.strip()))
    if any(isinstance(item, BeforeValidator) for item in get_args(annotation)):
        return adapter.validate_python(text)
    return adapter.validate_strings(text)
