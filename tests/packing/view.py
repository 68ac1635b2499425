"""What is seen of a placement from outside: metrics pages, log lines, and what each worker has run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, final

from tests.support.metrics import Page, parse
from tests.support.process import HttpAnswer

from reactant_core.testing import eventually_sync

REPACK_LINE = "lpt_packing: repack"
REPACK_FIELDS = (
    "placed",
    "moved",
    "held",
    "best_gain",
    "compute_seconds",
    "wall_seconds",
    "bytes_moved",
    "imbalance_before",
    "imbalance_after",
)
"""What gateway.md says that a repack line has."""

Homes = Mapping[str, frozenset[str]]


class Shows(Protocol):
    """A gateway with a page, alone or in a node."""

    def get(self, path: str, **options: Any) -> HttpAnswer:
        """GETs from its HTTP port."""


def page_of(gateway: Shows) -> Page:
    """Its metrics now."""
    answer = gateway.get("/metrics")
    assert answer.status == 200
    return parse(answer.body)


def homes(page: Page) -> Homes:
    """The workers of each model, by `gateway_placement_weight`; `gateway_model_replicas` must agree."""
    found: dict[str, set[str]] = {}
    for (name, labels), value in page.samples.items():
        if name == "gateway_placement_weight":
            assert math.isfinite(value), labels
            pair = dict(labels)
            found.setdefault(pair["model"], set()).add(pair["worker"])
    for model, workers in found.items():
        assert page.value("gateway_model_replicas", model=model) == len(workers), model
    return {model: frozenset(workers) for model, workers in found.items()}


def repacks(page: Page, trigger: str | None = None) -> float:
    """How many there were, by `gateway_repacks_total`."""
    labels = {} if trigger is None else {"trigger": trigger}
    return page.value("gateway_repacks_total", **labels)


def repack_lines(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The lines of a gateway's log about repacks, each of which must be whole."""
    found = [event for event in events if event.get("event") == REPACK_LINE]
    for event in found:
        missing = [name for name in REPACK_FIELDS if name not in event]
        assert not missing, (missing, event)
        assert all(math.isfinite(event[name]) for name in REPACK_FIELDS), event
    return found


@final
@dataclass(frozen=True, slots=True)
class Window:
    """What the workers have run between two looks at a page.

    Attributes:
        begin: the page before.
        end: the page after.
        seconds: between them.
    """

    begin: Page
    end: Page
    seconds: float

    def _moved(self, name: str, labels: Mapping[str, str]) -> float:
        return self.end.value(name, **labels) - self.begin.value(name, **labels)

    def compute(self, **labels: str) -> float:
        """Device-seconds, of one model or on one worker by these labels."""
        return self._moved("worker_compute_seconds_total", labels)

    def rows(self, **labels: str) -> float:
        """Rows, likewise."""
        return self._moved("worker_rows_served_total", labels)

    def dispatches(self, **labels: str) -> float:
        """Executions, likewise."""
        return self._moved("worker_dispatch_total", labels)

    def by_worker(self, workers: Iterable[str], **labels: str) -> dict[str, float]:
        """Device-seconds of each worker."""
        return {worker: self.compute(worker=worker, **labels) for worker in workers}

    def rows_by_worker(self, workers: Iterable[str], model: str) -> dict[str, float]:
        """Rows of a model that each worker ran, of those that ran any."""
        found = {worker: self.rows(worker=worker, model=model) for worker in workers}
        return {worker: rows for worker, rows in found.items() if rows}

    def unevenness(self, workers: Iterable[str]) -> float:
        """Device-seconds of the busiest worker, as a multiple of an equal part."""
        found = self.by_worker(workers)
        assert sum(found.values()) > 0
        return max(found.values()) * len(found) / sum(found.values())


@final
class Watch:
    """Looks at a page from now on."""

    def __init__(self, gateway: Shows) -> None:
        self._gateway = gateway
        self._begun = time.monotonic()
        self._page = page_of(gateway)

    def window(self) -> Window:
        """From the beginning until now."""
        return Window(self._page, page_of(self._gateway), time.monotonic() - self._begun)

    def after(self, enough: Callable[[Window], bool], seconds: float, what: str) -> Window:
        """The first window that is enough."""
        found: list[Window] = []

        def look() -> bool:
            found[:] = [self.window()]
            return enough(found[0])

        eventually_sync(look, seconds, what=what)
        return found[0]
