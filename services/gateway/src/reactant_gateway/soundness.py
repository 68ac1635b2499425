"""Whether OpenMetrics, stricter than the text format, takes a family as it is. Pure."""

from __future__ import annotations

from itertools import pairwise

from reactant_gateway.families import Family, Group, Sample


def is_sound(family: Family, group: Group) -> bool:
    """The values fit the type and each exemplar and timestamp its place (OpenMetrics 1.0, "Metric types")."""
    samples = list(group.values())
    if any(sample.timestamp != samples[0].timestamp for sample in samples):
        return False
    if any(sample.exemplar and not _may_have_exemplar(family, sample) for sample in samples):
        return False
    return _fits(family, group)


def _may_have_exemplar(family: Family, sample: Sample) -> bool:
    suffix = {"counter": "_total", "histogram": "_bucket"}.get(family.type)
    return suffix is not None and sample.name.endswith(suffix)


def _fits(family: Family, group: Group) -> bool:
    if family.type == "counter":
        return all(float(value.value) >= 0 for (name, _), value in group.items() if name == family.name)
    if family.type == "info":
        return all(float(sample.value) == 1 for sample in group.values())
    if family.type == "histogram":
        return _fits_histogram(family.name, group)
    if family.type == "summary":
        return _fits_summary(family.name, group)
    return True


def _fits_histogram(name: str, group: Group) -> bool:
    bucket = f"{name}_bucket"
    bounds: list[float] = []
    counts: list[float] = []
    for (sample, bound), line in group.items():
        if sample == bucket:
            try:
                bounds.append(float(bound))
            except ValueError:
                return False
            counts.append(float(line.value))
    count, total = group.get((f"{name}_count", "")), group.get((f"{name}_sum", ""))
    if (count is None) != (total is None) or not bounds or bounds[-1] != float("inf"):
        return False
    if not counts[0] >= 0 or not all(number.is_integer() for number in counts):
        return False
    if any(not low < high for low, high in pairwise(bounds)):
        return False
    if any(low > high for low, high in pairwise(counts)):
        return False
    if count is None or total is None:
        return True
    return float(count.value) == counts[-1] and float(total.value) >= 0 and bounds[0] >= 0


def _fits_summary(name: str, group: Group) -> bool:
    for (sample, quantile), line in group.items():
        value = float(line.value)
        if sample == name:
            # NaN, of a summary without observations, is fine.
            if value < 0 or not _is_quantile(quantile):
                return False
        elif not value >= 0 or (sample == f"{name}_count" and not value.is_integer()):
            return False
    return True


def _is_quantile(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False
