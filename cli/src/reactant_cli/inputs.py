"""What a user wrote on the command line, matched with what a model takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from reactant_cli.codec import Array
from reactant_cli.failure import USAGE, CommandFailure
from reactant_cli.shown import cut, shown
from reactant_cli.suggest import listed, near_names
from reactant_cli.values import TensorDecl, array_from_file, array_from_json, fit

Given = Callable[[TensorDecl], Array]
"""An input as given: makes the array once its declaration is known; ValueError when it does not fit."""


@final
@dataclass(frozen=True, slots=True)
class GivenInputs:
    """Inputs as the user gave them, before the model is known.

    Attributes:
        by_name: inputs given by name.
        texts: `--text` values, for the model's one BYTES input; empty when there are none.
        bare: one value for the model's one input, None when there is none.
    """

    by_name: Mapping[str, Given] = field(default_factory=dict)
    texts: tuple[str, ...] = ()

    def arrays(self, model: str, declared: Sequence[TensorDecl]) -> dict[str, Array]:
        """One array per declared input.

        Raises:
            CommandFailure: everything that does not fit, in one message.
        """
        faults: list[str] = []
        given = dict(self.by_name)
        if self.texts:
            target = _text_input(declared, given, faults)
            if target is not None:
                given[target.name] = _texts(self.texts)
        known = {decl.name: decl for decl in declared}
        faults += [_unknown(name, known) for name in given if name not in known]
        arrays: dict[str, Array] = {}
        for name, decl in known.items():
            if name not in given:
                if not (self.texts and faults):
                    faults.append(f"input {name!r} ({decl}) is missing")
                continue
            try:
                arrays[name] = given[name](decl)
            except ValueError as error:
                faults.append(f"input {name!r}: {error}")
        if faults:
            raise CommandFailure(f"{model}: {'; '.join(faults)}", USAGE)
        return arrays


def read_inputs(assignments: Sequence[str], file: Path | None, texts: Sequence[str]) -> GivenInputs:
    """Reads `--input`, `--file` and `--text`.

    Raises:
        CommandFailure: an option that cannot be read, or none at all.
    """
    given: dict[str, Given] = {}
    for text in assignments:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise CommandFailure(
                f"--input {shown(text)}: write it as name=value, value a JSON list or @file.npy", USAGE
            )
        _add(given, name, _assigned(name, value), "--input")
    if file is not None:
        for name, one in _from_json_file(file).items():
            _add(given, name, one, str(file))
    if not given and not texts:
        raise CommandFailure("no input given: use --input name=value, --file request.json or --text", USAGE)
    return GivenInputs(given, tuple(texts))


def _add(given: dict[str, Given], name: str, one: Given, where: str) -> None:
    if name in given:
        raise CommandFailure(f"{where}: input {shown(name)} is given twice", USAGE)
    given[name] = one


def _assigned(name: str, value: str) -> Given:
    if value.startswith("@"):
        path = Path(value[1:])
        if path.suffix == ".npy":
            return lambda decl: array_from_file(path, decl)
        try:
            value = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailure(f"--input {cut(name)}: {cut(str(path))}: {_reason(error)}", USAGE) from None
    try:
        parsed = json.loads(value)
    except ValueError as error:
        message = f"{value[:60]!r} is not JSON ({error})"
        return lambda decl: _bare_text(value, message, decl)
    return lambda decl: array_from_json(str(value) if _is_word(parsed, decl) else parsed, decl)


def _is_word(parsed: Any, decl: TensorDecl) -> bool:
    # `--input text=42` for a BYTES tensor means the text 42.
    return decl.dtype.kserve == "BYTES" and isinstance(parsed, int | float | bool | None)


def _bare_text(value: str, message: str, decl: TensorDecl) -> Array:
    if decl.dtype.kserve != "BYTES" or value.startswith(("[", "{", '"')):
        raise ValueError(message)
    return array_from_json(value, decl)


def _from_json_file(path: Path) -> dict[str, Given]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
        document = json.loads(text)
    except (OSError, ValueError) as error:
        raise CommandFailure(f"{cut(str(path))}: {_reason(error)}", USAGE) from None
    if isinstance(document, dict) and isinstance(document.get("inputs"), list):
        return _from_v2_request(document["inputs"], path)
    if not isinstance(document, dict):
        raise CommandFailure(
            f'{path}: must be {{"input name": values, …}} or a KServe V2 request {{"inputs": […]}}', USAGE
        )
    return {name: _json_value(value) for name, value in document.items()}


def _from_v2_request(inputs: Sequence[Any], path: Path) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for index, entry in enumerate(inputs):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or "data" not in entry:
            raise CommandFailure(f"{path}: inputs[{index}] must have name, shape and data", USAGE)
        _add(given, entry["name"], _v2_value(entry), str(path))
    return given


def _json_value(value: Any) -> Given:
    return lambda decl: array_from_json(value, decl)


def _v2_value(entry: Mapping[str, Any]) -> Given:
    """An input of a V2 request: its data may be flat, its shape says how it is meant."""

    def make(decl: TensorDecl) -> Array:
        datatype = entry.get("datatype", decl.dtype.kserve)
        if datatype != decl.dtype.kserve:
            raise ValueError(f"datatype is {shown(datatype)}, the model takes {decl.dtype.kserve}")
        shape = entry.get("shape")
        if shape is None:
            return array_from_json(entry["data"], decl)
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"shape is {shown(shape)}, it must be a list of sizes")
        flat = array_from_json(entry["data"], TensorDecl(decl.name, decl.dtype, tuple(shape)))
        return fit(flat, decl)

    return make


def _texts(texts: Sequence[str]) -> Given:
    return lambda decl: array_from_json(list(texts), decl)


def _text_input(
    declared: Sequence[TensorDecl], given: Mapping[str, Given], faults: list[str]
) -> TensorDecl | None:
    candidates = [d for d in declared if d.dtype.kserve == "BYTES" and d.name not in given]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(repr(d.name) for d in candidates)
        faults.append(f"--text fits more than one input ({names}); use --input name=value")
    else:
        takes = ", ".join(f"{d.name!r} ({d})" for d in declared) or "no inputs"
        faults.append(f"--text needs an input of type BYTES that is not given yet; the model takes {takes}")
    return None


def _unknown(name: str, known: Mapping[str, TensorDecl]) -> str:
    near = near_names(name, known, limit=1)
    hint = f", did you mean {near[0]!r}?" if near else f"; it takes {listed(map(repr, known))}"
    return f"no input {shown(name)}{hint}"


def _reason(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)
