"""The page of the whole node: the gateway's own series and those of its workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, final

from prometheus_client import CollectorRegistry

from reactant_core.logs import get_logger
from reactant_gateway.families import Page, own_families
from reactant_gateway.merge import merge_pages
from reactant_gateway.metrics import GatewayMetrics
from reactant_gateway.render import render
from reactant_gateway.scrape import SCRAPE_SECONDS, Scraped, Target, scrape

_log = get_logger(__name__)

# A page that invents names must not fill the memory of what was said.
_PROBLEMS_REMEMBERED: Final = 1000


@final
class NodePage:
    """Renders `/metrics`, for `serve_health(page=…)`.

    Args:
        registry: the gateway's own series.
        metrics: told which pages came.
        targets: the workers' pages, asked for at each scrape.
        seconds: a page's time.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        metrics: GatewayMetrics,
        targets: Callable[[], Sequence[Target]],
        *,
        seconds: float = SCRAPE_SECONDS,
    ) -> None:
        self._registry = registry
        self._metrics = metrics
        self._targets = targets
        self._seconds = seconds
        self._missing: dict[str, str] = {}
        self._said: set[str] = set()

    async def __call__(self, *, openmetrics: bool) -> bytes:
        """The page as of now, in OpenMetrics or the text format."""
        scraped = await scrape(self._targets(), seconds=self._seconds)
        self._metrics.pages_came({one.target.worker: one.page is not None for one in scraped})
        self._say_missing(scraped)
        own = {}
        for family in own_families(self._registry.collect()):
            own[family.name] = family
            await asyncio.sleep(0)  # Requests go first.
        merged = merge_pages([Page("gateway", own), *(one.page for one in scraped if one.page is not None)])
        self._say_problems(merged.problems)
        pieces = []
        for piece in render(merged.families, openmetrics=openmetrics):
            pieces.append(piece)
            await asyncio.sleep(0)
        return "".join(pieces).encode()

    def _say_missing(self, scraped: Iterable[Scraped]) -> None:
        now = {one.target.worker: one.reason for one in scraped if one.page is None}
        for worker, reason in now.items():
            if worker not in self._missing:
                _log.warning("no metrics page of a worker", worker=worker, reason=reason)
        for worker in self._missing.keys() - now.keys():
            _log.info("metrics page of a worker is back", worker=worker)
        self._missing = now

    def _say_problems(self, problems: Iterable[str]) -> None:
        for problem in problems:
            if problem not in self._said and len(self._said) < _PROBLEMS_REMEMBERED:
                self._said.add(problem)
                _log.warning("metrics left out", problem=problem)
