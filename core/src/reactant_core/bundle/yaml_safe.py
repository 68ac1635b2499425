"""YAML for files that may be hostile: bounded in size, depth and what its aliases expand to.

The usual loaders compose a tree by recursion, keep the last of two equal keys, read `no` as a
boolean and let nine aliases of nine aliases grow into gigabytes for whoever walks them. This one
builds plain values from the parser's events with a stack of its own, and reads plain scalars by
the YAML 1.2 core schema (https://yaml.org/spec/1.2.2/#103-core-schema): `true` and `false` are
booleans; `no`, `on` and dates are text. Mapping keys are always text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, final

import yaml

from reactant_core.bundle.errors import FaultList, shown

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64
MAX_NODES: Final = 50_000
"""Values in a document, each alias counted as everything it stands for."""

_MAX_NUMBER_CHARS: Final = 400
_MAX_DIRECTIVES: Final = 8
_DIRECTIVE: Final = re.compile(r"(?:\A|[\r\n\x85\u2028\u2029])%")

# libyaml's scanner: the pure Python one takes tens of seconds for a file of the permitted size.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG_PREFIX: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = frozenset({None, "!"})
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]++\Z")
_OCTAL: Final = re.compile(r"0o[0-7]++\Z")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]++\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]++|[0-9]++(?:\.[0-9]*+)?)(?:[eE][-+]?[0-9]++)?\Z")
_SPECIAL_FLOAT: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")


@final
class YamlError(Exception):
    """The text is not YAML, or not YAML that is safe to read; the message names the line."""


@final
@dataclass(frozen=True, slots=True)
class YamlDocument:
    """What a text holds.

    Attributes:
        value: dicts with text keys, lists, str, int, float, bool and None. An alias is the same
            object as its anchor: do not change it.
        faults: repeated keys, each with its line; the first of them is the one in `value`.
    """

    value: object
    faults: tuple[str, ...]


def parse_yaml(data: bytes) -> YamlDocument:
    """Reads one document of at most 1 MiB, 64 levels and 50,000 values.

    Raises:
        YamlError: for anything else, several documents, tags that build objects, keys that are
            not scalars, or an alias without its anchor.
    """
    if len(data) > MAX_BYTES:
        raise YamlError(f"is {len(data)} bytes; at most {MAX_BYTES} are read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError(f"is not UTF-8 text (byte {error.start})") from error
    # libyaml compares each %TAG directive with all before it: seconds for what fits in a file.
    if len(_DIRECTIVE.findall(text)) > _MAX_DIRECTIVES:
        raise YamlError(f"holds over {_MAX_DIRECTIVES} lines that begin with %")
    builder = _Builder()
    try:
        builder.build(yaml.parse(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        raise YamlError(_described(error)) from error
    return YamlDocument(builder.root, builder.faults.sentences())


@final
class _Frame:
    """A collection being filled."""

    __slots__ = ("anchor", "first_node", "height", "key", "value")

    def __init__(self, value: list[object] | dict[str, object], anchor: str | None, first_node: int) -> None:
        self.value = value
        self.anchor = anchor
        self.first_node = first_node
        self.height = 0
        self.key: str | None = None


@final
@dataclass(frozen=True, slots=True)
class _Anchored:
    value: object
    nodes: int
    height: int


@final
class _Builder:
    """Turns events into a value, without recursion."""

    def __init__(self) -> None:
        self.root: object = None
        self.faults = FaultList()
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchored] = {}
        self._nodes = 0
        self._documents = 0

    def build(self, events: Iterable[Any]) -> None:
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.SequenceStartEvent):
                self._open(event, [], "seq")
            elif isinstance(event, yaml.MappingStartEvent):
                self._open(event, {}, "map")
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close(event)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise _at(event, "a second document begins; one is read")

    def _scalar(self, event: Any) -> None:
        self._count(event, 1)
        if self._wants_key():
            self._begin_entry(event)
            return
        plain = event.tag is None and event.implicit[0]
        if plain:
            value = _resolved(event)
        elif event.tag in _PLAIN_TAGS or event.tag == _TAG_PREFIX + "str":
            value = event.value
        else:
            raise _tag_refused(event)
        self._place(event.anchor, _Anchored(value, 1, 0))

    def _open(self, event: Any, value: list[object] | dict[str, object], tag: str) -> None:
        self._count(event, 1)
        if event.tag not in _PLAIN_TAGS and event.tag != _TAG_PREFIX + tag:
            raise _tag_refused(event)
        self._refuse_as_key(event)
        self._check_depth(event, len(self._stack) + 1)
        self._stack.append(_Frame(value, event.anchor, self._nodes))

    def _close(self, event: Any) -> None:
        frame = self._stack.pop()
        nodes = self._nodes - frame.first_node + 1
        self._place(frame.anchor, _Anchored(frame.value, nodes, frame.height + 1))

    def _alias(self, event: Any) -> None:
        self._refuse_as_key(event)
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise _at(event, f"alias {shown(event.anchor)} has no complete anchor before it")
        self._count(event, anchored.nodes)
        self._check_depth(event, len(self._stack) + anchored.height)
        self._place(None, anchored)

    def _place(self, anchor: str | None, item: _Anchored) -> None:
        if anchor is not None:
            self._anchors[anchor] = item
        if not self._stack:
            self.root = item.value
            return
        frame = self._stack[-1]
        frame.height = max(frame.height, item.height)
        if isinstance(frame.value, list):
            frame.value.append(item.value)
        else:
            assert frame.key is not None
            frame.value.setdefault(frame.key, item.value)
            frame.key = None

    def _wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _begin_entry(self, event: Any) -> None:
        frame = self._stack[-1]
        frame.key = event.value
        if event.value in frame.value:
            self.faults.add(f"line {event.start_mark.line + 1}: key {shown(event.value)} is given twice")

    def _refuse_as_key(self, event: Any) -> None:
        if self._wants_key():
            raise _at(event, "a mapping's key must be a plain name")

    def _count(self, event: Any, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise _at(event, f"holds over {MAX_NODES} values, aliases expanded")

    def _check_depth(self, event: Any, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _at(event, f"is nested more than {MAX_DEPTH} levels deep")


def _resolved(event: Any) -> object:
    text: str = event.value
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if not (text[0] in "+-." or "0" <= text[0] <= "9"):
        return text
    if len(text) > _MAX_NUMBER_CHARS:
        if _INTEGER.match(text) or _FLOAT.match(text):
            raise _at(event, f"a number of {len(text)} characters")
        return text
    if _INTEGER.match(text):
        return int(text)
    if _OCTAL.match(text):
        return int(text, 0)
    if _HEXADECIMAL.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text)
    if _SPECIAL_FLOAT.match(text):
        return float(text.replace(".", ""))
    return text


def _tag_refused(event: Any) -> YamlError:
    return _at(event, f"tag {shown(event.tag)} is not accepted; write the plain value")


def _at(event: Any, message: str) -> YamlError:
    return YamlError(f"line {event.start_mark.line + 1}: {message}")


def _described(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        return f"{line}not valid YAML: {error.problem or error.context}"
    reason = getattr(error, "reason", None)
    return f"not valid YAML: {reason}" if reason else "not valid YAML"
