"""Reads a metrics page: the Prometheus text format 0.0.4 or OpenMetrics 1.0.

Stricter than prometheus_client's parser of the text format, which takes a repeated header for a new family,
and an order of magnitude cheaper, as values and labels stay text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, final

from reactant_gateway.families import (
    Family,
    Page,
    Sample,
    canonical,
    escape,
    grouped,
    sample_names,
    stem,
    text_names,
)

_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_KEY: Final = r"[a-zA-Z_][a-zA-Z0-9_]*+"
_IS: Final = r"[ \t]*+=[ \t]*+"
_TEXT: Final = r'[^"\\\n]*+(?:\\["\\n][^"\\\n]*+)*+'
_LABELS: Final = rf'\{{[ \t]*+((?:{_KEY}{_IS}"{_TEXT}"[ \t]*+(?:,[ \t]*+|(?=\}})))*+)\}}'
_NUMBER: Final = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_VALUE: Final = rf"{_NUMBER}|[+-]?[iI][nN][fF](?:inity)?|[nN][aA][nN]"
_GAP: Final = r"[ \t]++"

_find_pairs = re.compile(rf'({_KEY}){_IS}"({_TEXT})"').findall
_match_sample = re.compile(
    rf"({_NAME})[ \t]*+(?:{_LABELS})?[ \t]*+(?<=[ \t}}])({_VALUE})(?:{_GAP}({_NUMBER}))?"
    rf"(?:{_GAP}#{_GAP}{_LABELS}{_GAP}({_VALUE})(?:{_GAP}({_NUMBER}))?)?[ \t]*+"
).fullmatch
_match_header = re.compile(rf"#{_GAP}(HELP|TYPE|UNIT){_GAP}({_NAME})(?:[ \t](.*))?", re.DOTALL).fullmatch
_is_header = re.compile(rf"#{_GAP}(?:HELP|TYPE|UNIT)(?:[ \t]|$)").match
_sub_escapes = re.compile(r'\\([n\\"])').sub

_TEXT_TYPES: Final = ("counter", "gauge", "histogram", "summary", "untyped", "unknown")
_OPENMETRICS_TYPES: Final = (
    "counter", "gauge", "histogram", "summary", "unknown", "info", "stateset", "gaugehistogram",
)  # fmt: skip
_WHITESPACE: Final = " \t"
_EXEMPLAR_CHARACTERS: Final = 128
_SLICE_BYTES: Final = 16 * 1024
_TIMESTAMP_DIGITS: Final = 16


@final
class PageError(ValueError):
    """The page is not valid as a whole: cut off, garbage, or with repeated headers; the text says what."""


@final
class PageReader:
    """Takes the lines of one page, a slice at a time, and gives the page.

    Args:
        source: the name it goes by in warnings.
        labels: added to every sample. One that has such a label already keeps its own as `exported_…`, as
            Prometheus does.
        openmetrics: the page's format.
    """

    def __init__(self, source: str, labels: Mapping[str, str], *, openmetrics: bool) -> None:
        self._source = source
        self._openmetrics = openmetrics
        self._labels = _Labels(labels)
        self._families: dict[str, Family] = {}
        self._owners: dict[str, Family] = {}
        self._headers: dict[str, dict[str, str]] = {}
        self._problems: dict[str, None] = {}
        self._ended = False

    def feed(self, lines: Iterable[str]) -> None:
        """Takes further lines, without their ends. Raises PageError."""
        for line in lines:
            if self._ended:
                raise PageError("text after # EOF")
            if line.startswith("#"):
                self._comment(line)
            elif line.strip(_WHITESPACE):
                self._sample(line)
            elif self._openmetrics:
                raise PageError("a blank line")

    def finish(self) -> Page:
        """The page. Raises PageError when its end is missing."""
        if self._openmetrics and not self._ended:
            raise PageError("no # EOF at its end")
        self._fold_created()
        return Page(
            self._source, {n: f for n, f in self._families.items() if f.groups}, tuple(self._problems)
        )

    def _comment(self, line: str) -> None:
        if self._openmetrics and line == "# EOF":
            self._ended = True
            return
        found = _match_header(line)
        if found is None:
            if self._openmetrics or _is_header(line):
                raise PageError(f"cannot read {_short(line)}")
            return
        kind, name, text = found.groups("")
        header = self._headers.setdefault(name, {})
        if kind in header:
            raise PageError(f"{name} has more than one {kind}")
        header[kind] = text
        if kind == "TYPE":
            self._declare(name, text.strip(_WHITESPACE))

    def _declare(self, name: str, kind: str) -> None:
        if kind not in (_OPENMETRICS_TYPES if self._openmetrics else _TEXT_TYPES):
            raise PageError(f"{name} has the unknown TYPE {_short(kind)}")
        if kind == "gaugehistogram":
            return  # Its samples stand for themselves: the text format has nothing like it.
        full = name
        if self._openmetrics:
            full += {"counter": "_total", "info": "_info"}.get(kind, "")
        kind = {"untyped": "unknown", "stateset": "gauge"}.get(kind, kind)
        if full in self._families:
            raise PageError(f"the TYPE of {name} comes after samples, or after another's")
        family = self._families[full] = Family(full, kind)
        for sample in sample_names(family) if self._openmetrics else text_names(family):
            if self._owners.setdefault(sample, family) is not family:
                raise PageError(f"{sample} is of two families")

    def _sample(self, line: str) -> None:
        found = _match_sample(line.lstrip(_WHITESPACE) if line[0] in _WHITESPACE else line)
        if found is None:
            raise PageError(f"cannot read {_short(line)}")
        name, raw, value, timestamp, exemplar, exemplar_value, exemplar_time = found.groups()
        family = self._owners.get(name)
        if family is None:
            if name in self._families:
                raise PageError(f"{name} is a {self._families[name].type} and cannot be a sample")
            family = self._families[name] = self._owners[name] = Family(name)
        if not family.groups:
            header = self._headers.get(stem(family) if self._openmetrics else family.name, {})
            family.help = _unescape_help(header.get("HELP", ""), quotes=self._openmetrics)
            family.unit = header.get("UNIT", "")
        group, own, labels = self._labels.of(raw or "")
        samples = family.groups.get(group)
        if samples is None:
            samples = family.groups[group] = {}
        key = name, own
        if key in samples:
            self._problems[f"{name} has samples with the same labels"] = None
            return
        text = ""
        if exemplar is not None:
            if not self._openmetrics:
                raise PageError(f"cannot read {_short(line)}")
            text = _exemplar(exemplar, canonical(exemplar_value), exemplar_time)
        if timestamp is not None:
            timestamp = _seconds(timestamp, milliseconds=not self._openmetrics)
        samples[key] = Sample(name, labels, canonical(value), timestamp or "", text)

    def _fold_created(self) -> None:
        """Gives `x_created`, a family of its own in the text format, back to x."""
        for name in [name for name in self._families if name.endswith("_created")]:
            created = self._families[name]
            base = name.removesuffix("_created")
            parent = self._families.get(f"{base}_total") or self._families.get(base)
            if (
                parent is None
                or created.type not in ("gauge", "unknown")
                or name not in sample_names(parent)
                or not created.groups.keys() <= parent.groups.keys()
            ):
                continue
            del self._families[name]
            for group, samples in created.groups.items():
                parent.groups[group].update(samples)


def read_page(source: str, labels: Mapping[str, str], body: bytes, *, openmetrics: bool) -> Page:
    """The page in `body`. Raises PageError."""
    reader = PageReader(source, labels, openmetrics=openmetrics)
    for lines in page_slices(body):
        reader.feed(lines)
    return reader.finish()


def page_slices(body: bytes) -> Iterator[list[str]]:
    """The lines of a page for `PageReader.feed`, about 250 at a time.

    Raises PageError when it is not UTF-8 or cut off.
    """
    if body and not body.endswith(b"\n"):
        raise PageError("its last line is cut off")
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + _SLICE_BYTES)
        end = len(body) - 1 if end < 0 else end
        try:
            yield body[start:end].decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise PageError("not UTF-8") from error
        start = end + 1


@final
class _Labels:
    """Labels of lines: sorted, with the added ones, each distinct text worked out once."""

    def __init__(self, added: Mapping[str, str]) -> None:
        self._added = {name: escape(value) for name, value in added.items() if value}
        self._known: dict[str, tuple[str, str, str]] = {}

    def of(self, raw: str) -> tuple[str, str, str]:
        """Labels without `le` and `quantile`, the value of that one, and all of them."""
        known = self._known.get(raw)
        if known is None:
            known = self._known[raw] = grouped(self._merged(raw))
        return known

    def _merged(self, raw: str) -> list[tuple[str, str]]:
        pairs: list[tuple[str, str]] = _find_pairs(raw)
        names = {name for name, _ in pairs}
        if len(names) != len(pairs) or "__name__" in names:
            raise PageError(f"cannot read the labels {_short(raw)}")
        merged = dict(self._added)
        for name, value in pairs:
            if name not in self._added:
                merged[name] = value
            elif value:
                exported = f"exported_{name}"
                while exported in names or exported in merged:
                    exported = f"exported_{exported}"
                merged[exported] = value
        return list(merged.items())


def _seconds(text: str, *, milliseconds: bool) -> str:
    if milliseconds:
        if not text.lstrip("+-").isdigit() or len(text) > _TIMESTAMP_DIGITS:
            raise PageError(f"{_short(text)} is no timestamp")
        return f"{int(text) / 1000:.3f}"
    if not abs(float(text)) < 10 ** (_TIMESTAMP_DIGITS - 3):
        raise PageError(f"{_short(text)} is no timestamp")
    return text


def _exemplar(raw: str, value: str, timestamp: str | None) -> str:
    pairs = _find_pairs(raw)
    if sum(len(name) + len(text) for name, text in pairs) > _EXEMPLAR_CHARACTERS:
        return ""  # OpenMetrics' limit; the sample is worth more than its example.
    labels = ",".join(f'{name}="{text}"' for name, text in pairs)
    return f"{{{labels}}} {value}" + (f" {timestamp}" if timestamp else "")


def _unescape_help(text: str, *, quotes: bool) -> str:
    if "\\" not in text:
        return text

    def plain(found: re.Match[str]) -> str:
        character = found[1]
        return "\n" if character == "n" else character if quotes or character != '"' else found[0]

    return _sub_escapes(plain, text)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
