"""Metric families as text, between reading and writing a page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, final

from prometheus_client.core import Metric


class Sample(NamedTuple):
    """One line.

    Attributes:
        name: with its suffix, such as `_bucket`.
        labels: `a="1",b="2"`, sorted by name and escaped; empty without any.
        value: as written, `+Inf`, `-Inf` and `NaN` spelt so.
        timestamp: seconds; empty without one.
        exemplar: `{…} value [timestamp]`; empty without one.
    """

    name: str
    labels: str
    value: str
    timestamp: str = ""
    exemplar: str = ""


Group = dict[tuple[str, str], Sample]


@final
@dataclass(slots=True)
class Family:
    """Samples under one header.

    Attributes:
        name: as the text format has it: `x_total` of a counter, `x_info` of an information.
        type: counter, gauge, histogram, summary, info or unknown.
        help: unescaped.
        unit: OpenMetrics' UNIT; empty without one.
        groups: samples by labels without `le` and `quantile`; inside by sample name and that label.
    """

    name: str
    type: str = "unknown"
    help: str = ""
    unit: str = ""
    groups: dict[str, Group] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Page:
    """What one source had to say.

    Attributes:
        source: the name it goes by in warnings.
        families: by name, in the page's order.
        problems: samples left out, for a warning each.
    """

    source: str
    families: Mapping[str, Family]
    problems: tuple[str, ...] = ()


def stem(family: Family) -> str:
    """The family's name in OpenMetrics; the same where it has none of its own."""
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    return family.name.removesuffix(suffix) or family.name


def text_names(family: Family) -> tuple[str, ...]:
    """The names its samples may have in the text format."""
    name = family.name
    if family.type == "histogram":
        return f"{name}_bucket", f"{name}_sum", f"{name}_count"
    if family.type == "summary":
        return name, f"{name}_sum", f"{name}_count"
    return (name,)


def sample_names(family: Family) -> tuple[str, ...]:
    """The names its samples may have in OpenMetrics."""
    created: tuple[str, ...] = ()
    if family.type in ("histogram", "summary") or (family.type == "counter" and stem(family) != family.name):
        created = (f"{stem(family)}_created",)
    return text_names(family) + created


def own_families(metrics: Iterable[Metric]) -> Iterable[Family]:
    """A registry's metrics as families, one at a time."""
    for metric in metrics:
        suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
        family = Family(metric.name + suffix, metric.type, metric.documentation, metric.unit)
        for sample in metric.samples:
            pairs = [(key, escape(value)) for key, value in sample.labels.items()]
            group, own, labels = grouped(pairs)
            line = Sample(sample.name, labels, number_text(sample.value))
            family.groups.setdefault(group, {})[sample.name, own] = line
        yield family


def grouped(pairs: list[tuple[str, str]]) -> tuple[str, str, str]:
    """Labels without `le` and `quantile`, the value of that one, and all of them; sorts `pairs` by name."""
    pairs.sort()
    own = ""
    group: list[str] = []
    every: list[str] = []
    for name, value in pairs:
        if name in ("le", "quantile"):
            value = canonical(value)  # noqa: PLW2901
            own = value
            every.append(f'{name}="{value}"')
        else:
            text = f'{name}="{value}"'
            every.append(text)
            # To Prometheus a label without a value is not there.
            if value:
                group.append(text)
    return ",".join(group), own, ",".join(every)


def number_text(value: float) -> str:
    """A value as both formats write it."""
    return canonical(repr(float(value)))


def canonical(value: str) -> str:
    """A number's text with infinities and NaN spelt as both formats want it."""
    if value[-1:].isdigit():
        return value
    return {
        "inf": "+Inf",
        "infinity": "+Inf",
        "-inf": "-Inf",
        "-infinity": "-Inf",
        "nan": "NaN",
    }.get(value.lower().lstrip("+"), value)


def escape(value: str) -> str:
    """A label's value as both formats write it between the quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
