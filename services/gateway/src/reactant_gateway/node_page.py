"""The page of the whole node: the gateway's own series and those of its workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final, final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from reactant_core.logs import get_logger
from reactant_gateway.aside import CollectorPause, aside
from reactant_gateway.families import Page, own_families
from reactant_gateway.merge import merge_pages
from reactant_gateway.metrics import GatewayMetrics
from reactant_gateway.render import render
from reactant_gateway.scrape import SCRAPE_SECONDS, Scraped, Target, fetch, read

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
        self._collector = CollectorPause()
        self._making: dict[bool, asyncio.Task[bytes]] = {}

    async def __call__(self, *, openmetrics: bool) -> bytes:
        """The page, in OpenMetrics or the text format; who asks while one is being made gets that one."""
        making = self._making.get(openmetrics)
        if making is None:
            making = self._making[openmetrics] = asyncio.create_task(self._make(openmetrics=openmetrics))
            making.add_done_callback(lambda _: self._making.pop(openmetrics))
        # Whoever hangs up must not take the page from the others.
        return await asyncio.shield(making)

    async def _make(self, *, openmetrics: bool) -> bytes:
        fetched = await fetch(self._targets(), seconds=self._seconds)
        with self._collector.held():
            scraped = await read(fetched)
            self._metrics.pages_came({one.target.worker: one.page is not None for one in scraped})
            self._say_missing(scraped)
            own = []
            for metric in self._registry.collect():
                own.append(metric)
                await asyncio.sleep(0)  # Requests go first.
            pages = [one.page for one in scraped if one.page is not None]
            page, problems = await aside(partial(_put_together, own, pages, openmetrics=openmetrics))
            self._say_problems(problems)
        return page

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


def _put_together(
    own: list[Metric], pages: Sequence[Page], *, openmetrics: bool
) -> Generator[None, None, tuple[bytes, tuple[str, ...]]]:
    """The page and what was left out of it; empties `own` and takes `pages` apart."""
    families = {}
    while own:
        for family in own_families((own.pop(0),)):
            families[family.name] = family
        yield
    merged = merge_pages([Page("gateway", families), *pages])
    yield
    pieces = []
    for piece in render(merged.families, openmetrics=openmetrics):
        pieces.append(piece.encode())
        yield
    # Half a million samples that go at once hold the interpreter lock for a tenth of a second.
    for source in (*(page.families for page in pages), families, merged.families):
        for family in source.values():
            while family.groups:
                family.groups.popitem()
                yield
    return b"".join(pieces), merged.problems
