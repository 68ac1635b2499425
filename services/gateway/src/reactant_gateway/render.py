"""Writes families as a metrics page, in either format. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from reactant_gateway.families import Family, Sample, sample_names, stem, text_names
from reactant_gateway.soundness import is_sound

_PIECE_LINES: Final = 500
_PIECE_GROUPS: Final = 50


def render(families: Mapping[str, Family], *, openmetrics: bool) -> Iterator[str]:
    """The page in pieces of about 500 lines: text format 0.0.4, or OpenMetrics 1.0.

    A family that OpenMetrics would refuse, such as a counter below zero, is written there as samples of
    unknown type.
    """
    if openmetrics:
        yield from _openmetrics_page(families)
    else:
        for family in families.values():
            yield from _text_family(family)


def _text_family(family: Family) -> Iterator[str]:
    main = frozenset(text_names(family))
    kind = {"info": "gauge", "unknown": "untyped"}.get(family.type, family.type)
    header = _header(family.name, kind, _escape(family.help))
    samples = [sample for group in family.groups.values() for sample in group.values()]
    yield from _pieces(header, (sample for sample in samples if sample.name in main), _text_line)
    # `_created` is a family of its own here.
    for name in sample_names(family):
        if name not in main and (others := [sample for sample in samples if sample.name == name]):
            yield from _pieces(_header(name, "gauge", _escape(family.help)), others, _text_line)


def _openmetrics_page(families: Mapping[str, Family]) -> Iterator[str]:
    taken = {name for family in families.values() for name in (family.name, *sample_names(family))}
    for family in families.values():
        base = stem(family)
        sound = True
        for count, group in enumerate(family.groups.values(), start=1):
            sound = sound and is_sound(family, group)
            if count % _PIECE_GROUPS == 0:
                yield ""  # The caller may let others run.
        if family.type in ("counter", "info"):
            # A gauge x beside a counter x_total: two names in the text format, one in OpenMetrics.
            sound = sound and base not in taken
            taken.add(base)
        if sound:
            samples = (sample for group in family.groups.values() for sample in group.values())
            header = _header(base, family.type, _escape_all(family.help))
            if family.unit and family.type != "info" and base.endswith(f"_{family.unit}"):
                header += f"# UNIT {base} {family.unit}\n"
            yield from _pieces(header, samples, _openmetrics_line)
        else:
            yield from _untyped(family)
    yield "# EOF\n"


def _untyped(family: Family) -> Iterator[str]:
    """The samples as families of unknown type, one a sample name."""
    by_name: dict[str, list[Sample]] = {}
    for group in family.groups.values():
        for sample in group.values():
            by_name.setdefault(sample.name, []).append(sample._replace(exemplar=""))
    for name, samples in by_name.items():
        yield from _pieces(_header(name, "unknown", _escape_all(family.help)), samples, _openmetrics_line)


def _pieces(header: str, samples: Iterable[Sample], line: Callable[[Sample], str]) -> Iterator[str]:
    lines = [header]
    for sample in samples:
        lines.append(line(sample))
        if len(lines) >= _PIECE_LINES:
            yield "".join(lines)
            lines.clear()
    yield "".join(lines)


def _header(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _text_line(sample: Sample) -> str:
    name, labels, value, timestamp, _ = sample
    milliseconds = f" {round(float(timestamp) * 1000)}" if timestamp else ""
    return f"{name}{{{labels}}} {value}{milliseconds}\n" if labels else f"{name} {value}{milliseconds}\n"


def _openmetrics_line(sample: Sample) -> str:
    name, labels, value, timestamp, exemplar = sample
    end = f" {timestamp}" if timestamp else ""
    if exemplar:
        end += f" # {exemplar}"
    return f"{name}{{{labels}}} {value}{end}\n" if labels else f"{name} {value}{end}\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escape_all(text: str) -> str:
    return _escape(text).replace('"', r"\"")
