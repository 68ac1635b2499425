"""Environment variables as values for fields: one variable for each scalar and each list."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, final, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

from reactant_core.config.accepted import accepted, faults_of, field_type, nearest, shown
from reactant_core.config.document import KeyPath, dotted
from reactant_core.config.faults import Fault


@final
@dataclass(frozen=True, slots=True)
class Variable:
    """A field that a variable can set: its name in the environment, its place, its type.

    `separator` is what stands between the items of a list.
    """

    name: str
    path: KeyPath
    annotation: Any
    separator: str = ":"


def variables(
    model: type[BaseModel],
    prefix: str,
    skip: Sequence[str] = (),
    *,
    separator: str = ":",
    renamed: Mapping[str, str] | None = None,
) -> dict[str, Variable]:
    """Every variable that can set a field of `model`, by name.

    Args:
        model: what the variables configure.
        prefix: what all names begin with.
        skip: top-level fields left out.
        separator: what stands between the items of a list.
        renamed: dotted key to the whole name of its variable, where that does not follow from the key.
    """
    found = {}
    for path, annotation in _leaves(model):
        if path[0] not in skip:
            derived = prefix + "_".join(str(part) for part in path).upper()
            name = (renamed or {}).get(dotted(path), derived)
            found[name] = Variable(name, path, annotation, separator)
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
            values[variable] = _convert(variable, text)
        except ValidationError as error:
            faults.append(_fault(variable, text, error))
    return values, faults


def _fault(variable: Variable, text: str, error: ValidationError) -> Fault:
    found = faults_of(error, variable.annotation, lambda _: variable.name)
    if _is_list(variable.annotation) and all(fault.key for fault in found):
        return Fault(variable.name, "; ".join(fault.problem for fault in found), variable.name)
    given = shown(text, variable.annotation)
    custom = next((found["ctx"]["error"] for found in error.errors() if found["type"] == "value_error"), None)
    problem = str(custom) if custom is not None else f"accepted is {_phrase(variable)}"
    return Fault(variable.name, f"{given}; {problem}", variable.name, found[0].suggestion)


def unknown_variable(name: str, prefix: str, known: Sequence[str]) -> Fault:
    """The fault of a variable that begins with `prefix` and is not known, with the nearest that is."""
    # The prefix that nearly all share would make all of them look alike.
    short = {other.removeprefix(prefix): other for other in known}
    suggestion = nearest(name.removeprefix(prefix), list(short))
    return Fault(name, "unknown variable", name, None if suggestion is None else short[suggestion])


def _is_list(annotation: Any) -> bool:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_origin(annotation) is tuple


def _phrase(variable: Variable) -> str:
    if not _is_list(variable.annotation):
        return accepted(variable.annotation)
    separators = {":": "colons", ",": "commas"}[variable.separator]
    return f"{accepted(variable.annotation)}, separated by {separators}"


def _convert(variable: Variable, text: str) -> Any:
    annotation = variable.annotation
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    if _is_list(annotation):
        parts = (part.strip() for part in text.split(variable.separator))
        return adapter.validate_python(tuple(part for part in parts if part))
    if any(isinstance(item, BeforeValidator) for item in get_args(annotation)):
        return adapter.validate_python(text)
    return adapter.validate_strings(text)
