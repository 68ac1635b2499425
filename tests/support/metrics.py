"""What a metrics page says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from prometheus_client.parser import text_string_to_metric_families

Key = tuple[str, frozenset[tuple[str, str]]]


@final
@dataclass(frozen=True, slots=True)
class Page:
    """One scrape.

    Attributes:
        samples: value by sample name and labels.
        types: type by family name.
    """

    samples: Mapping[Key, float]
    types: Mapping[str, str]

    def value(self, name: str, **labels: str) -> float:
        """The sum over the samples of `name` that carry these labels; 0 without any.

        The page must at least declare the family: a misspelt name is no zero.
        """
        wanted = labels.items()
        assert {name, name.removesuffix("_total")} & self.types.keys() or name in self._names, name
        return sum(v for (sample, have), v in self.samples.items() if sample == name and wanted <= set(have))

    @property
    def _names(self) -> set[str]:
        return {sample for sample, _ in self.samples}

    def labels(self, label: str, name: str | None = None) -> set[str]:
        """Every value a label has, on all samples or on those of one name."""
        return {
            value
            for (sample, have) in self.samples
            if name in (None, sample)
            for key, value in have
            if key == label
        }

    def by_code(self, model: str) -> dict[str, float]:
        """`worker_requests_total` of a model by status name."""
        codes = self.labels("code", "worker_requests_total")
        found = {code: self.value("worker_requests_total", model=model, code=code) for code in codes}
        return {code: count for code, count in found.items() if count}


def parse(body: bytes, only: Sequence[str] = ()) -> Page:
    """Reads a page in the text format, or of it the samples whose names begin so; none may be there twice."""
    text = body.decode()
    if only:
        begins = tuple(f"{prefix}{name}" for name in only for prefix in ("", "# TYPE ", "# HELP "))
        text = "".join(line for line in text.splitlines(keepends=True) if line.startswith(begins))
    samples: dict[Key, float] = {}
    types: dict[str, str] = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in types, f"family {family.name} is there twice"
        types[family.name] = family.type
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples, f"sample {key} is there twice"
            samples[key] = sample.value
    return Page(samples, types)
