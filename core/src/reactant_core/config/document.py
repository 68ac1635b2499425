"""YAML files read with the line of every key, so that a fault can be found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import yaml

from reactant_core.config.faults import Fault

_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

KeyPath = tuple[str | int, ...]


def dotted(path: KeyPath) -> str:
    """`scheduler.models.minilm.weight`, `workers[0].port`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


@final
@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file.

    Attributes:
        tree: its top mapping; lists are tuples.
        origin: the file's name, or what stands for it.
        lines: line of each key and list item, counted from 1; empty where lines mean nothing to a reader.
        faults: what was wrong with the text itself.
    """

    tree: Mapping[str, Any]
    origin: str
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def source(self, path: KeyPath) -> str:
        """`file:line` of the nearest key at or above `path`, the file alone where there is none."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return f"{self.origin}:{self.lines[path[:end]]}"
        return self.origin


def read_document(path: Path, key: str) -> Document:
    """Reads `path`; one that cannot be read is a fault of `key`, which named it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            (error.strerror or str(error)).lower() if isinstance(error, OSError) else "it is not UTF-8 text"
        )
        return Document({}, str(path), faults=(Fault(key, f"{path} cannot be read: {reason}", key),))
    return parse_document(text, str(path))


def parse_document(text: str, origin: str) -> Document:
    """Parses YAML text; faults of syntax, duplicate keys and the like are in the result."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            return Document({}, origin)
        walk = _Walk(origin)
        tree = walk.value(node, (), frozenset())
    except yaml.YAMLError as error:
        return Document({}, origin, faults=(_syntax_fault(error, origin),))
    if not isinstance(tree, Mapping):
        problem = f"the file holds {_kind(node)}; accepted is a mapping of keys to values"
        return Document({}, origin, faults=(Fault(origin, problem, f"{origin}:1"),))
    return Document(tree, origin, walk.lines, tuple(walk.faults))


def _syntax_fault(error: yaml.YAMLError, origin: str) -> Fault:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None)
    where = origin if mark is None else f"{origin}:{mark.line + 1}:{mark.column + 1}"
    return Fault(where, f"not YAML: {problem}" + (f" {context}" if context else ""), where)


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "a single value"


@final
class _Walk:
    """Turns composed nodes into plain values, keeping lines and collecting faults."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._loader = yaml.SafeLoader("")
        self.lines: dict[KeyPath, int] = {}
        self.faults: list[Fault] = []

    def value(self, node: yaml.Node, path: KeyPath, above: frozenset[int]) -> Any:
        if id(node) in above:
            self._fault(path, node, "an alias that contains itself")
            return None
        above |= {id(node)}
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN_TAGS:
            self._fault(path, node, f"the tag {node.tag}, which is not accepted")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[*path, index] = item.start_mark.line + 1
                items.append(self.value(item, (*path, index), above))
            return tuple(items)
        try:
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self._fault(path, node, f"{node.value!r}: {getattr(error, 'problem', None) or error}")
            return None

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, above: frozenset[int]) -> dict[str, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is not None and name in seen and key.tag != "tag:yaml.org,2002:merge":
                self._fault((*path, name), key, f"given twice, first in line {seen[name]}")
            elif name is not None:
                seen[name] = key.start_mark.line + 1
        self._loader.flatten_mapping(node)
        result: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(path, key, "a key that is not a plain word")
                continue
            name = key.value
            self.lines[*path, name] = key.start_mark.line + 1
            result[name] = self.value(value, (*path, name), above)
        return result

    def _fault(self, path: KeyPath, node: yaml.Node, problem: str) -> None:
        where = f"{self._origin}:{node.start_mark.line + 1}"
        self.faults.append(Fault(dotted(path) or self._origin, problem, where))
